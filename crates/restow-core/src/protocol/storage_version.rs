//! What API servers register of how they store a resource, and what remains of it when they have gone.
//!
//! A StorageVersion object has an entry for each API server. A server writes its own before it serves, on condition of
//! the resourceVersion it has read; what it writes is computed anew from what is read anew, so no entry is ever lost.

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
/// The condition that says whether all servers encode to one version.
pub const ALL_EQUAL: &str = "AllEncodingVersionsEqual";
/// How the core group is spelt in names of StorageVersion objects.
const CORE: &str = "core";

/// The name of a resource's StorageVersion object.
pub fn name(resource: &GroupResource) -> String {
    let group = if resource.group.is_empty() { CORE } else { &resource.group };
    format!("{group}.{}", resource.resource)
}

/// The API group that the name of a StorageVersion object speaks of.
pub fn group(name: &str) -> &str {
    match name.rsplit_once('.').map_or(name, |(group, _)| group) {
        CORE => "",
        group => group,
    }
}

/// The resource that the name of a StorageVersion object speaks of.
pub fn resource(name: &str) -> GroupResource {
    GroupResource::new(group(name), name.rsplit_once('.').map_or(name, |(_, resource)| resource))
}

/// Why versions cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidVersions {
    /// What is written could not be read back.
    #[error("{0} is written and cannot be decoded")]
    Encoding(String),
    /// What is served could not be read.
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
    /// Objects are stored as `encoding`, and can be read from all that are `decodable`, among them all `served` ones.
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

    /// The version objects are stored in.
    pub fn encoding(&self) -> &str {
        &self.encoding
    }
}

/// What one API server has registered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The server's id: the name of its identity Lease.
    pub server: String,
    /// Its versions.
    pub versions: Versions,
}

/// Which API servers are alive, as far as that can be told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Membership {
    /// These are, and no other.
    Known(BTreeSet<String>),
    /// It could not be read, for this reason: nobody counts as gone.
    Unknown(String),
}

impl Membership {
    /// What the server `own` makes of the ids it has read: a list that lacks the reader is not the list it needs.
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

/// A server that nobody takes for alive must not register: its entry would be taken for a stale one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} has no live identity Lease")]
pub struct NotAMember(pub String);

/// The entries as they are to be when `own` is registered among those that were read.
///
/// Its own is made or replaced, those of absent servers are dropped, all others stay as they are.
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

/// What becomes of a StorageVersion object whose servers may have gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Collection {
    /// Nothing.
    Keep,
    /// It is to have just these entries.
    Update(Vec<Entry>),
    /// Nobody stores the resource any more.
    Delete,
}

/// Decides what is garbage, by entries that were read *before* the members were.
///
/// In this order an entry of a new server is never taken for a stale one, because a server is a member before it
/// registers.
pub fn collect(entries: &[Entry], membership: &Membership) -> Collection {
    if matches!(membership, Membership::Unknown(_)) {
        return Collection::Keep;
    }
    let kept = remaining(entries, membership);
    if kept.is_empty() {
        Collection::Delete
    } else if kept.len() == entries.len() {
        Collection::Keep
    } else {
        Collection::Update(kept)
    }
}

/// Decides what becomes of an object whose resource this server stores no more; what others have registered stays.
pub fn unregister(entries: &[Entry], own: &str) -> Collection {
    let kept: Vec<Entry> = entries.iter().filter(|entry| entry.server != own).cloned().collect();
    if kept.len() == entries.len() {
        Collection::Keep
    } else if kept.is_empty() {
        Collection::Delete
    } else {
        Collection::Update(kept)
    }
}

/// What a live server has to do about its own entry of a StorageVersion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// Nothing.
    Keep,
    /// It is not there, or not as the server handles the resource: somebody else has changed it.
    Register,
    /// The server handles the resource no more.
    Drop,
}

/// Decides by the entries, and by how the server handles the resource now; none if it does not.
pub fn upkeep(entries: &[Entry], own: &str, handled: Option<&Versions>) -> Upkeep {
    match (entries.iter().find(|entry| entry.server == own), handled) {
        (Some(entry), Some(handled)) if entry.versions == *handled => Upkeep::Keep,
        (_, Some(_)) => Upkeep::Register,
        (Some(_), None) => Upkeep::Drop,
        (None, None) => Upkeep::Keep,
    }
}

fn remaining(entries: &[Entry], membership: &Membership) -> Vec<Entry> {
    entries.iter().filter(|entry| !membership.is_gone(&entry.server)).cloned().collect()
}

/// The version all entries are of, by the rule that those who wait for agreement go by.
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

/// The circumstances of a write of a status.
#[derive(Clone, Copy, Debug)]
pub struct Occasion<'a> {
    /// The generation of the object.
    pub generation: Option<i64>,
    /// Who registers: one life of one server, told apart from its life before.
    ///
    /// A server that starts anew may register just what is there. Without a trace of it the object would not change,
    /// and who has found its old entry stale a moment ago could still delete it.
    pub registrant: Option<&'a str>,
    /// The time.
    pub now: Timestamp,
}

/// The status with these entries: the common version and the condition follow from them.
pub fn status(
    before: Option<&StorageVersionStatus>,
    entries: &[Entry],
    occasion: Occasion<'_>,
) -> StorageVersionStatus {
    let common = common(entries);
    let conditions = before.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let (equal, mut kept): (Vec<_>, Vec<_>) =
        conditions.iter().cloned().partition(|condition| condition.type_ == ALL_EQUAL);
    let last = before.and_then(|status| status.common_encoding_version.as_deref());
    let unchanged = equal.into_iter().next().filter(|_| last == common);
    kept.push(condition(unchanged, common, occasion));
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

/// The condition; the time of its transition tells since when the common version is what it is, or is none.
fn condition(
    unchanged: Option<StorageVersionCondition>,
    common: Option<&str>,
    occasion: Occasion<'_>,
) -> StorageVersionCondition {
    let (status, reason, what) = match common {
        Some(version) => ("True", "CommonEncodingVersionSet", format!("Every API server writes {version}")),
        None => {
            ("False", "CommonEncodingVersionUnset", "The API servers write different versions".to_owned())
        }
    };
    let message = match occasion.registrant {
        Some(registrant) => format!("{what}; {registrant} registered last"),
        None => what,
    };
    let unchanged = unchanged.filter(|condition| condition.status == status);
    StorageVersionCondition {
        type_: ALL_EQUAL.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: occasion.generation,
        last_transition_time: unchanged
            .and_then(|condition| condition.last_transition_time)
            .or(Some(Time(occasion.now))),
    }
}

#[cfg(test)]
mod tests;
