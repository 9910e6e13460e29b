//! Pages of a list, and the paths of a resource's objects.

use std::borrow::Cow;
use std::time::Duration;

use http::Method;
use http::header::LOCATION;
use restow_clock::Instant;
use restow_core::agreement::transient::PriorAnswers;
use restow_core::resource::inventory::Resource;
use restow_core::resource::name::{GroupResource, GroupVersion};
use restow_core::rewrite::conversion::Conversion;
use restow_core::rewrite::managed_fields::Versions;
use restow_core::rewrite::page::{Refusal, longest};
use restow_core::rewrite::progress::Quarantined;
use restow_core::rewrite::token::NEWEST;
use serde_json::value::RawValue;

use crate::client::wire::{List, ManagedFieldsEntry, Object, Status};
use crate::client::{METADATA_LIST, Reply, Server};

/// The endpoint of a resource's objects.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource.
    pub name: GroupResource,
    /// The version that requests use.
    pub version: GroupVersion,
    /// The kind of its objects.
    pub kind: String,
    /// The versions whose managedFields entries are kept.
    pub versions: Versions,
    /// How a conversion webhook takes part in reads and writes, if there is one.
    pub conversion: Option<Conversion>,
}

/// One object to rewrite.
#[derive(Clone, Debug)]
pub struct Item {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.uid`, a precondition of the write.
    pub uid: Box<str>,
    /// The resourceVersion when it was listed.
    pub resource_version: Box<str>,
    /// Its managedFields, only if some entries are of versions that are not kept.
    pub stale_fields: Option<Box<RawValue>>,
    /// Whether a webhook has to convert its managedFields in a write.
    pub converted_fields: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The objects.
    pub items: Vec<Item>,
    /// The continue token of the next page; `None` after the last page and in streams.
    pub next: Option<String>,
    /// Whether this is the last page.
    pub last: bool,
    /// How many objects follow this page, if the server says so.
    pub remaining: Option<u64>,
    /// Objects that cannot be read and were skipped before this page.
    pub unreadable: Vec<Quarantined>,
    /// The size of the answer in bytes.
    pub bytes: usize,
}

/// Why a page could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The resource is no longer served.
    #[error("{0} is no longer served")]
    Vanished(GroupResource),
    /// The server refuses to list.
    #[error("listing {resource}: {message} ({code})")]
    Refused {
        /// The resource that was listed.
        resource: GroupResource,
        /// The HTTP status code.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// The rest of the list cannot be read now. That is not the fault of one object.
    #[error("{resource} after {behind:?} cannot be read: {message}")]
    Unavailable {
        /// The resource that was listed.
        resource: GroupResource,
        /// The key of the last object that could be read.
        behind: String,
        /// The server's message.
        message: String,
    },
    /// An object cannot be read or is too large, and the server's continue tokens cannot be moved past it.
    #[error("an object of {resource} after {behind:?} can be neither read nor skipped: {message}")]
    Stuck {
        /// The resource that was listed.
        resource: GroupResource,
        /// The key of the last object that could be read.
        behind: String,
        /// The server's message.
        message: String,
    },
}

/// Is told what restow waits for.
pub trait Waiting {
    /// restow waits for this long, for this reason.
    fn waiting(&self, why: &str, wait: Duration);
}

impl Target {
    /// The endpoint of a resource; `None` if no version of it is served.
    pub fn of(resource: &Resource) -> Option<Self> {
        Some(Self {
            name: resource.name.clone(),
            version: resource.endpoint()?.clone(),
            kind: resource.kind.clone(),
            versions: Versions::of(resource),
            conversion: Conversion::of(resource),
        })
    }

    /// The version that requests use, then the others through which objects can be read without conversion.
    pub(crate) fn readable(&self) -> impl Iterator<Item = &GroupVersion> {
        std::iter::once(&self.version).chain(self.others())
    }

    /// Only those others.
    pub(crate) fn others(&self) -> impl Iterator<Item = &GroupVersion> {
        self.conversion.iter().flat_map(|conversion| &conversion.others)
    }

    /// The path of the list of all objects.
    pub(crate) fn list_path(&self) -> String {
        self.list_path_at(&self.version, "")
    }

    /// The path of a list in another version or of one namespace.
    pub(crate) fn list_path_at(&self, version: &GroupVersion, namespace: &str) -> String {
        let (base, resource) = (version.path(), &self.name.resource);
        if namespace.is_empty() {
            format!("{base}/{resource}")
        } else {
            format!("{base}/namespaces/{namespace}/{resource}")
        }
    }

    pub(crate) fn object_path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.list_path_at(&self.version, namespace), segment(name))
    }

    pub(crate) fn item(&self, object: Object<'_>) -> Item {
        let meta = object.metadata;
        let fields = meta.managed_fields;
        let entries: Vec<ManagedFieldsEntry<'_>> =
            fields.and_then(|fields| serde_json::from_str(fields.get()).ok()).unwrap_or_default();
        let versions = || entries.iter().map(|entry| &*entry.api_version);
        let stale = fields.filter(|_| versions().any(|version| self.versions.goes(version)));
        Item {
            namespace: meta.namespace.into(),
            name: meta.name.into(),
            uid: meta.uid.into(),
            resource_version: meta.resource_version.into(),
            stale_fields: stale.map(RawValue::to_owned),
            converted_fields: self.conversion.as_ref().is_some_and(|webhook| webhook.converts(versions())),
        }
    }
}

/// A name as one segment of a path: names of RBAC objects may contain almost anything.
pub(crate) fn segment(name: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    if name.bytes().all(plain) {
        return Cow::Borrowed(name);
    }
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    Cow::Owned(name.bytes().map(escape).collect())
}

impl Item {
    /// Identifies the object in the state in which it was listed.
    pub(crate) fn fingerprint(&self) -> String {
        format!("{} {} {}", self.key(), self.uid, self.resource_version)
    }

    /// Its key below the resource's prefix in etcd. Lists are sorted by it.
    pub fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }
}

/// The key of an object of this name.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Reads the page at this path, and its resourceVersion.
pub(crate) async fn page(server: &Server, target: &Target, path: &str) -> Result<(Page, i64), Refusal> {
    page_within(server, target, path, longest(1, None)).await
}

/// Reads the page at this path if it is not larger than `longest` bytes.
pub(crate) async fn page_within(
    server: &Server,
    target: &Target,
    path: &str,
    longest: usize,
) -> Result<(Page, i64), Refusal> {
    let reply = match server.send_within(Method::GET, path, METADATA_LIST, None, longest).await {
        Ok(reply) => reply,
        Err(broken) => return Err(Refusal { message: broken.to_string(), ..Refusal::default() }),
    };
    let (code, bytes, before) = (reply.code, reply.body.len(), server.before(path));
    if reply.too_long {
        let message = format!("the page is longer than {} KiB", longest >> 10);
        return Err(Refusal { code, message, too_long: true, bytes, ..Refusal::default() });
    }
    if !(200..300).contains(&code) {
        return Err(Refusal { before, ..refusal(&reply) });
    }
    let list = List::read(&reply.body).map_err(|message| Refusal {
        code,
        before,
        message,
        malformed: true,
        bytes,
        ..Refusal::default()
    })?;
    server.answered(path);
    let taken_at = list.metadata.resource_version.and_then(|v| v.parse().ok()).unwrap_or(NEWEST);
    let page = Page {
        items: list.items.unwrap_or_default().into_iter().map(|object| target.item(object)).collect(),
        last: list.metadata.next.as_ref().is_none_or(String::is_empty),
        next: list.metadata.next.filter(|next| !next.is_empty()),
        remaining: list.metadata.remaining_item_count,
        unreadable: Vec::new(),
        bytes,
    };
    Ok((page, taken_at))
}

fn refusal(reply: &Reply) -> Refusal {
    let status: Status = reply.status();
    let location = reply.headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let message = match (status.message.is_empty(), location) {
        (false, _) => status.message.clone(),
        (true, Some(location)) => format!("HTTP {}, a redirect to {location}", reply.code),
        (true, None) => format!("HTTP {}", reply.code),
    };
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    Refusal {
        code: reply.code,
        status: status.kind == "Status",
        before: PriorAnswers::default(),
        retry_after: reply.retry_after(&status),
        too_new: causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge"),
        fresh: status.metadata.next,
        message,
        malformed: false,
        too_long: false,
        bytes: reply.body.len(),
    }
}

/// Measures how long one page has been refused without a break.
#[derive(Default)]
pub(crate) struct RefusalStreak(Option<Instant>);

impl RefusalStreak {
    /// For how long the page has been refused. An outage ends the streak.
    pub(crate) fn lasted(&mut self, refusal: &Refusal) -> Duration {
        if !refusal.counts() {
            self.0 = None;
            return Duration::ZERO;
        }
        self.0.get_or_insert_with(Instant::now).elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_ends_a_streak_of_refusals() {
        let refusal = |code, malformed| Refusal { code, malformed, ..Refusal::default() };
        let (no_list, outage) = (refusal(200, true), refusal(0, false));
        let mut streak = RefusalStreak::default();
        let mut seconds = Vec::new();
        for refusal in [&no_list, &no_list, &outage, &no_list, &no_list] {
            seconds.push(streak.lasted(refusal).as_secs());
            tokio::time::sleep(Duration::from_secs(50)).await;
        }
        assert_eq!(seconds, [0, 50, 0, 0, 50]);
    }

    #[test]
    fn names_are_escaped_in_paths() {
        for (name, expected) in [
            ("w-1", "w-1"),
            ("system:node", "system:node"),
            ("a b", "a%20b"),
            ("50%", "50%25"),
            ("é", "%C3%A9"),
            ("a?b#c", "a%3Fb%23c"),
        ] {
            assert_eq!(segment(name), expected);
        }
    }
}
