//! How API servers register the version in which they store a resource, and what happens to the entries of servers that no
//! longer exist.
//!
//! A StorageVersion object has an entry for each API server. A server writes its own entry before it serves, with the
//! resourceVersion as a precondition. After a conflict it reads the object again and computes the entries again, so no entry is
//! lost.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::apiserverinternal::v1alpha1::{
    ServerStorageVersion, StorageVersionCondition, StorageVersionStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::agreement;
use crate::resource::name::{GroupResource, GroupVersion};

/// The API group of StorageVersion objects.
pub const GROUP: &str = "internal.apiserver.k8s.io";
/// The resource of StorageVersion objects.
pub const RESOURCE: &str = "storageversions";
/// The condition that shows whether all servers encode to the same version.
pub const ALL_EQUAL: &str = "AllEncodingVersionsEqual";
/// The core group in names of StorageVersion objects.
const CORE: &str = "core";

/// The name of a resource's StorageVersion object.
pub fn name(resource: &GroupResource) -> String {
    let group = if resource.group.is_empty() { CORE } else { &resource.group };
    format!("{group}.{}", resource.resource)
}

/// The API group in the name of a StorageVersion object.
pub fn group(name: &str) -> &str {
    match name.rsplit_once('.').map_or(name, |(group, _)| group) {
        CORE => "",
        group => group,
    }
}

/// The resource in the name of a StorageVersion object.
pub fn resource(name: &str) -> GroupResource {
    GroupResource::new(group(name), name.rsplit_once('.').map_or(name, |(_, resource)| resource))
}

/// Why versions cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidVersions {
    /// The encoding version cannot be decoded.
    #[error("{0} is written and cannot be decoded")]
    Encoding(String),
    /// A served version cannot be decoded.
    #[error("{0} is served and cannot be decoded")]
    Served(String),
}

/// The versions in which one API server handles a resource, each as an `apiVersion`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Versions {
    encoding: String,
    decodable: Vec<String>,
    served: Vec<String>,
}

impl Versions {
    /// Objects are stored in `encoding` and can be read in all `decodable` versions, which must include all `served` ones.
    pub fn new(
        encoding: &GroupVersion,
        decodable: &[GroupVersion],
        served: &[GroupVersion],
    ) -> Result<Self, InvalidVersions> {
        if !decodable.contains(encoding) {
            return Err(InvalidVersions::Encoding(encoding.to_string()));
        }
        if let Some(unread) = served.iter().find(|version| !decodable.contains(version)) {
            return Err(InvalidVersions::Served(unread.to_string()));
        }
        let texts = |versions: &[GroupVersion]| versions.iter().map(GroupVersion::to_string).collect();
        Ok(Self { encoding: encoding.to_string(), decodable: texts(decodable), served: texts(served) })
    }

    /// The version in which objects are stored.
    pub fn encoding(&self) -> &str {
        &self.encoding
    }
}

/// What one API server has registered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The server's id: the name of its identity Lease.
    pub server: String,
    /// The versions that it registered.
    pub versions: Versions,
}

/// Which API servers are alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Membership {
    /// Exactly these are alive.
    Known(BTreeSet<String>),
    /// It could not be read, for this reason, so no server counts as gone.
    Unknown(String),
}

impl Membership {
    /// The membership as the server `own` reads it. A list without the reader itself cannot be complete.
    pub fn as_seen_by(own: &str, live: BTreeSet<String>) -> Self {
        if live.contains(own) {
            Self::Known(live)
        } else {
            Self::Unknown(format!("{own} itself is not among the live API servers"))
        }
    }

    fn is_gone(&self, server: &str) -> bool {
        matches!(self, Self::Known(live) if !live.contains(server))
    }
}

/// A server without a live identity Lease must not register, because others would treat its entry as stale.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} has no live identity Lease")]
pub struct NotAMember(pub String);

/// The entries after `own` has registered: its own is added or replaced, those of servers that are gone are removed, and
/// all others stay.
pub fn register(entries: &[Entry], membership: &Membership, own: &Entry) -> Result<Vec<Entry>, NotAMember> {
    if membership.is_gone(&own.server) {
        return Err(NotAMember(own.server.clone()));
    }
    let mut kept = remaining(entries, membership);
    match kept.iter_mut().find(|entry| entry.server == own.server) {
        Some(entry) => entry.versions = own.versions.clone(),
        None => kept.push(own.clone()),
    }
    Ok(kept)
}

/// What to do about a StorageVersion object whose servers may be gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CollectAction {
    /// Nothing.
    Keep,
    /// Write exactly these entries.
    Update(Vec<Entry>),
    /// Delete it: no server stores the resource any more.
    Delete,
}

/// Decides which entries are garbage. The entries must be read *before* the members.
///
/// In this order the entry of a new server never looks stale, because a server is a member before it registers.
pub fn collect(entries: &[Entry], membership: &Membership) -> CollectAction {
    if matches!(membership, Membership::Unknown(_)) {
        return CollectAction::Keep;
    }
    let kept = remaining(entries, membership);
    if kept.is_empty() {
        CollectAction::Delete
    } else if kept.len() == entries.len() {
        CollectAction::Keep
    } else {
        CollectAction::Update(kept)
    }
}

/// Decides what to do about an object whose resource this server no longer stores; the entries of others stay.
pub fn unregister(entries: &[Entry], own: &str) -> CollectAction {
    let kept: Vec<Entry> = entries.iter().filter(|entry| entry.server != own).cloned().collect();
    if kept.len() == entries.len() {
        CollectAction::Keep
    } else if kept.is_empty() {
        CollectAction::Delete
    } else {
        CollectAction::Update(kept)
    }
}

/// What a live server has to do about its own entry of a StorageVersion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnEntryAction {
    /// Nothing.
    Keep,
    /// Register again: the entry is missing, or something else has changed it.
    Register,
    /// Remove the entry: the server no longer handles the resource.
    Drop,
}

/// Decides what a server does about its own entry, given how it handles the resource now; none if it does not.
pub fn own_entry_action(entries: &[Entry], own: &str, handled: Option<&Versions>) -> OwnEntryAction {
    match (entries.iter().find(|entry| entry.server == own), handled) {
        (Some(entry), Some(handled)) if entry.versions == *handled => OwnEntryAction::Keep,
        (_, Some(_)) => OwnEntryAction::Register,
        (Some(_), None) => OwnEntryAction::Drop,
        (None, None) => OwnEntryAction::Keep,
    }
}

fn remaining(entries: &[Entry], membership: &Membership) -> Vec<Entry> {
    entries.iter().filter(|entry| !membership.is_gone(&entry.server)).cloned().collect()
}

/// The version that all entries have in common, by the same rule as the agreement.
pub fn common(entries: &[Entry]) -> Option<&str> {
    agreement::version::common(entries.iter().map(|entry| entry.versions.encoding.as_str()))
}

/// The entries of a status.
pub fn entries(status: Option<&StorageVersionStatus>) -> Vec<Entry> {
    let all = status.and_then(|status| status.storage_versions.as_deref()).unwrap_or_default();
    all.iter()
        .map(|entry| Entry {
            server: entry.api_server_id.clone(),
            versions: Versions {
                encoding: entry.encoding_version.clone(),
                decodable: entry.decodable_versions.clone(),
                served: entry.served_versions.clone().unwrap_or_default(),
            },
        })
        .collect()
}

/// What the status of a StorageVersion needs besides the entries.
#[derive(Clone, Copy, Debug)]
pub struct StatusContext<'a> {
    /// The generation of the object.
    pub generation: Option<i64>,
    /// Identifies the process that registers.
    ///
    /// A server that restarts may register exactly what is there. Without this the object would not change, and a collector
    /// that has just found the old entry stale could still delete it.
    pub registrant: Option<&'a str>,
    /// The time for the condition.
    pub now: Timestamp,
}

/// The status with these entries, the common version and the condition.
pub fn status(
    before: Option<&StorageVersionStatus>,
    entries: &[Entry],
    context: StatusContext<'_>,
) -> StorageVersionStatus {
    let common = common(entries);
    let conditions = before.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let (equal, mut kept): (Vec<_>, Vec<_>) =
        conditions.iter().cloned().partition(|condition| condition.type_ == ALL_EQUAL);
    let last = before.and_then(|status| status.common_encoding_version.as_deref());
    let unchanged = equal.into_iter().next().filter(|_| last == common);
    kept.push(condition(unchanged, common, context));
    StorageVersionStatus {
        common_encoding_version: common.map(str::to_owned),
        conditions: Some(kept),
        storage_versions: Some(entries.iter().map(server_storage_version).collect()),
    }
}

fn server_storage_version(entry: &Entry) -> ServerStorageVersion {
    let Versions { encoding, decodable, served } = entry.versions.clone();
    ServerStorageVersion {
        api_server_id: entry.server.clone(),
        encoding_version: encoding,
        decodable_versions: decodable,
        served_versions: Some(served).filter(|served| !served.is_empty()),
    }
}

/// The condition; its transition time is when the common version last changed.
fn condition(
    unchanged: Option<StorageVersionCondition>,
    common: Option<&str>,
    context: StatusContext<'_>,
) -> StorageVersionCondition {
    let (status, reason, what) = match common {
        Some(version) => ("True", "CommonEncodingVersionSet", format!("Every API server writes {version}")),
        None => {
            ("False", "CommonEncodingVersionUnset", "The API servers write different versions".to_owned())
        }
    };
    let message = match context.registrant {
        Some(registrant) => format!("{what}; {registrant} registered last"),
        None => what,
    };
    let unchanged = unchanged.filter(|condition| condition.status == status);
    StorageVersionCondition {
        type_: ALL_EQUAL.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: context.generation,
        last_transition_time: unchanged
            .and_then(|condition| condition.last_transition_time)
            .or(Some(Time(context.now))),
    }
}

#[cfg(test)]
mod tests;
