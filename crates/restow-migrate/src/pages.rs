//! Lists the metadata of a resource's objects, page by page.

use std::borrow::Cow;
use std::time::Duration;

use http::Method;
use restow_core::managed_fields::Versions;
use restow_core::outcome::backoff;
use restow_core::page::{Refusal, Step, step};
use restow_core::progress::Quarantined;
use restow_core::resource::{GroupResource, GroupVersion};
use restow_core::token::{NEWEST, Token};
use serde_json::value::RawValue;

use crate::chunks::Chunks;
use crate::server::{METADATA_LIST, Reply, Server};
use crate::stream::Stream;
use crate::wire::{List, ManagedFieldsEntry, Object, Status};

/// Where a resource's objects are.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource.
    pub name: GroupResource,
    /// The version requests are sent to.
    pub version: GroupVersion,
    /// The versions whose managedFields entries stay.
    pub versions: Versions,
}

/// One object to rewrite.
#[derive(Debug)]
pub struct Item {
    /// Its namespace, empty for cluster-wide objects.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// Its resourceVersion when it was listed.
    pub resource_version: Box<str>,
    /// Its managedFields, kept only when some are of versions that do not stay.
    pub stale_fields: Option<Box<RawValue>>,
}

/// One page.
#[derive(Debug, Default)]
pub struct Page {
    /// The objects.
    pub items: Vec<Item>,
    /// Where the next page starts, in lists that have tokens; none after the last.
    pub next: Option<String>,
    /// Whether this is the last page.
    pub last: bool,
    /// How many objects come behind this page, where the server tells.
    pub remaining: Option<u64>,
    /// Objects that cannot be read, found before this page.
    pub unreadable: Vec<Quarantined>,
}

/// Why no page can be had.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The resource is no longer served.
    #[error("{0} is no longer served")]
    Vanished(GroupResource),
    /// The server refuses to list.
    #[error("listing {resource}: {message} ({code})")]
    Refused {
        /// The resource.
        resource: GroupResource,
        /// The HTTP status code.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// An object cannot be read, and the server's tokens cannot be shifted past it.
    #[error("an object of {resource} behind {behind:?} cannot be read, nor stepped over: {message}")]
    Stuck {
        /// The resource.
        resource: GroupResource,
        /// The key of the last object that could be read.
        behind: String,
        /// The server's words.
        message: String,
    },
}

/// Tells somebody that something is being waited for.
pub trait Waiting {
    /// Waits, and says why.
    fn waiting(&self, why: &str, wait: Duration);
}

impl Target {
    /// The path of the list of all objects.
    pub(crate) fn list_path(&self) -> String {
        format!("{}/{}", self.version.path(), self.name.resource)
    }

    /// The path of one object.
    pub(crate) fn object_path(&self, namespace: &str, name: &str) -> String {
        let base = self.version.path();
        let (resource, name) = (&self.name.resource, segment(name));
        if namespace.is_empty() {
            format!("{base}/{resource}/{name}")
        } else {
            format!("{base}/namespaces/{namespace}/{resource}/{name}")
        }
    }

    pub(crate) fn item(&self, object: Object<'_>) -> Item {
        let meta = object.metadata;
        let stale = meta.managed_fields.filter(|fields| {
            let entries: Vec<ManagedFieldsEntry<'_>> = serde_json::from_str(fields.get()).unwrap_or_default();
            entries.iter().any(|entry| self.versions.goes(&entry.api_version))
        });
        Item {
            namespace: meta.namespace.into(),
            name: meta.name.into(),
            uid: meta.uid.into(),
            resource_version: meta.resource_version.into(),
            stale_fields: stale.map(RawValue::to_owned),
        }
    }
}

/// A name as one segment of a path: names of RBAC objects may hold almost anything.
fn segment(name: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    if name.bytes().all(plain) {
        return Cow::Borrowed(name);
    }
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    Cow::Owned(name.bytes().map(escape).collect())
}

impl Item {
    fn named(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            uid: Box::default(),
            resource_version: Box::default(),
            stale_fields: None,
        }
    }

    /// Its key below the resource's prefix in etcd, by which lists are sorted.
    pub fn key(&self) -> String {
        if self.namespace.is_empty() {
            self.name.to_string()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

/// How many objects a resource has, as far as its server tells.
pub async fn count(server: &Server, target: &Target) -> Result<Option<u64>, Refusal> {
    let path = format!("{}?limit=1", target.list_path());
    let reply = server.send(Method::GET, &path, METADATA_LIST, None).await;
    let reply = reply.map_err(|broken| Refusal { message: broken.to_string(), ..Refusal::default() })?;
    if reply.code != 200 {
        return Err(refusal(&reply));
    }
    let list: List<'_> = match serde_json::from_slice(&reply.body) {
        Ok(list) => list,
        Err(_) => return Ok(None),
    };
    let complete = list.metadata.next.as_ref().is_none_or(String::is_empty);
    let shown = list.items.map_or(0, |items| items.len() as u64);
    Ok(match list.metadata.remaining_item_count {
        Some(remaining) => Some(remaining + shown),
        None if complete => Some(shown),
        None => None,
    })
}

/// What is to be found of one object.
pub enum Found {
    /// It is there.
    Item(Item),
    /// It no longer exists, or another stands in its place.
    Gone,
    /// It still cannot be read.
    Unreadable,
}

/// Looks one object up by name, with the right to list alone.
pub async fn find(server: &Server, target: &Target, object: &Quarantined) -> Result<Found, PageError> {
    let path = if object.uid.is_empty() {
        // It could not be read; a list filtered by name would not show whether it can be now.
        let item = Item::named(&object.namespace, &object.name);
        let token = Token { resource_version: NEWEST, start: item.key() };
        format!("{}?limit=1&continue={}", target.list_path(), token.encode())
    } else {
        let within = if object.namespace.is_empty() {
            String::new()
        } else {
            format!("/namespaces/{}", object.namespace)
        };
        let (base, resource) = (target.version.path(), &target.name.resource);
        format!("{base}{within}/{resource}?limit=1&fieldSelector=metadata.name%3D{}", segment(&object.name))
    };
    let mut tries = 0;
    loop {
        let refusal = match server.send(Method::GET, &path, METADATA_LIST, None).await {
            Ok(reply) if reply.code == 200 => {
                let list: List<'_> = serde_json::from_slice(&reply.body).unwrap_or_default();
                let item =
                    list.items.unwrap_or_default().into_iter().next().map(|object| target.item(object));
                return Ok(match item {
                    Some(item) if *item.name == *object.name && *item.namespace == *object.namespace => {
                        Found::Item(item)
                    }
                    _ => Found::Gone,
                });
            }
            Ok(reply) => refusal(&reply),
            Err(broken) => Refusal { message: broken.to_string(), ..Refusal::default() },
        };
        match step(&refusal, tries, true) {
            Step::Wait(asked) => {
                tries += 1;
                tokio::time::sleep(backoff(tries, asked)).await;
            }
            Step::Isolate | Step::ContinueNewest => return Ok(Found::Unreadable),
            Step::Vanished => return Err(PageError::Vanished(target.name.clone())),
            _ => {
                return Err(PageError::Refused {
                    resource: target.name.clone(),
                    code: refusal.code,
                    message: refusal.message,
                });
            }
        }
    }
}

/// A list, in one of its two ways.
pub enum Listing<'a> {
    /// In chunks.
    Chunks(Chunks<'a>),
    /// As one stream.
    Stream(Stream<'a>),
}

impl Listing<'_> {
    /// The next page. A stream that cannot go on is continued in chunks.
    pub async fn next(&mut self) -> Result<Page, PageError> {
        match self {
            Self::Chunks(chunks) => chunks.next().await,
            Self::Stream(stream) => match stream.next().await {
                Ok(page) => Ok(page),
                Err(why) => {
                    tracing::info!(%why, "listing in chunks instead of streaming");
                    *self = Self::Chunks(stream.in_chunks());
                    match self {
                        Self::Chunks(chunks) => chunks.next().await,
                        Self::Stream(_) => Ok(Page::default()),
                    }
                }
            },
        }
    }
}

pub(crate) fn refusal(reply: &Reply) -> Refusal {
    let status: Status = reply.status();
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    Refusal {
        code: reply.code,
        retry_after: reply.retry_after(&status),
        too_new: causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge"),
        fresh: status.metadata.next,
        message: status.message,
    }
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn names_become_path_segments() {
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
