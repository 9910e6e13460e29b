//! Counts the objects of a resource, and looks up single ones.

use http::Method;
use restow_core::resource::name::GroupVersion;
use restow_core::rewrite::outcome::{LookupResult, backoff};
use restow_core::rewrite::page::{Refusal, Step, step};
use restow_core::rewrite::progress::Quarantined;
use restow_core::rewrite::token::{NEWEST, Token};

use super::pages::{Item, Page, PageError, RefusalStreak, Target, key, page, segment};
use crate::client::wire::{List, ObjectMeta};
use crate::client::{METADATA_LIST, Server};

/// How many objects a resource has, if the server says so.
pub async fn count(server: &Server, target: &Target) -> Result<Option<u64>, Refusal> {
    Ok(count_at(server, target).await?.0)
}

/// How many objects a resource has and at which resourceVersion, if the server says so.
pub(crate) async fn count_at(
    server: &Server,
    target: &Target,
) -> Result<(Option<u64>, Option<i64>), Refusal> {
    let (page, version) = first_page(server, target, 1).await?;
    let shown = page.items.len() as u64;
    let objects = match page.remaining {
        Some(remaining) => Some(remaining + shown),
        None if page.last => Some(shown),
        None => None,
    };
    Ok((objects, Some(version).filter(|version| *version > 0)))
}

/// The first object that has none of these uids, if there is one.
pub(crate) async fn another(
    server: &Server,
    target: &Target,
    besides: &[Box<str>],
) -> Result<Option<Item>, Refusal> {
    let (page, _) = first_page(server, target, besides.len() as u32 + 1).await?;
    Ok(page.items.into_iter().find(|other| !besides.contains(&other.uid)))
}

async fn first_page(server: &Server, target: &Target, limit: u32) -> Result<(Page, i64), Refusal> {
    let mut refused = None;
    for version in target.readable() {
        let path = format!("{}?limit={limit}", target.list_path_at(version, ""));
        match page(server, target, &path).await {
            Ok(page) => return Ok(page),
            Err(refusal) => refused = refused.or(Some(refusal)),
        }
    }
    Err(refused.unwrap_or_default())
}

/// Why an object could not be looked up.
pub(crate) enum LookupError {
    /// The server says that the resource is not served.
    NotServed(String),
    /// Another error, which may pass.
    Failed(String),
}

/// Looks up once what is stored under an object's name. It only needs permission to list.
pub(crate) async fn look_up(
    server: &Server,
    target: &Target,
    item: &Item,
) -> Result<LookupResult, LookupError> {
    let mut blind = None;
    // Another version shows objects that a webhook fails to convert.
    for version in target.readable() {
        for path in [by_key, by_name] {
            match listed(server, item, &path(target, version, &item.namespace, &item.name)).await {
                Ok(Some(sighting)) => return Ok(sighting),
                // The server uses other tokens, or ignores the selector.
                Ok(None) => {}
                Err(why) => {
                    blind = blind.or(Some(why));
                    break;
                }
            }
        }
    }
    Err(blind.unwrap_or_else(|| LookupError::Failed("the server's lists cannot be searched".to_owned())))
}

/// What a list that should start with the object shows of it; `None` if the server returned another list.
async fn listed(server: &Server, item: &Item, path: &str) -> Result<Option<LookupResult>, LookupError> {
    let reply = server
        .send(Method::GET, path, METADATA_LIST, None)
        .await
        .map_err(|broken| LookupError::Failed(broken.to_string()))?;
    match reply.code {
        200 => read(&reply.body, item).map_err(LookupError::Failed),
        400 | 410 => Ok(None),
        404 => Err(LookupError::NotServed(reply.status().message)),
        code => Err(LookupError::Failed(format!("{} ({code})", reply.status().message))),
    }
}

fn read(body: &[u8], item: &Item) -> Result<Option<LookupResult>, String> {
    let items = List::read(body)?.items.unwrap_or_default();
    let at = |meta: &ObjectMeta<'_>| key(&meta.namespace, &meta.name);
    let found = items.iter().map(|object| &object.metadata).find(|meta| at(meta) == item.key());
    let Some(found) = found else {
        // A list that starts before the object ignored its start.
        let before = items.iter().any(|object| at(&object.metadata) < item.key());
        return Ok((!before).then_some(LookupResult::Absent));
    };
    let found = Some((&*found.uid, &*found.resource_version));
    Ok(Some(LookupResult::of(&item.uid, &item.resource_version, found)))
}

/// The result of looking up one object.
pub enum Found {
    /// It exists.
    Item(Item),
    /// It no longer exists, or another object has its name.
    Gone,
    /// It still cannot be read.
    Unreadable,
}

/// Looks up one object by name. It only needs permission to list.
pub async fn find(server: &Server, target: &Target, object: &Quarantined) -> Result<Found, PageError> {
    // A list filtered by name waits for the watch cache, which never fills while any object cannot be read.
    let mut named = false;
    let (mut tries, mut streak) = (0, RefusalStreak::default());
    loop {
        let path = if named { by_name } else { by_key };
        let refusal =
            match page(server, target, &path(target, &target.version, &object.namespace, &object.name)).await
            {
                Ok((page, _)) => return Ok(found(page, object)),
                Err(refusal) => refusal,
            };
        match step(&refusal, tries, streak.lasted(&refusal), true) {
            Step::Wait(asked) => {
                tries += 1;
                tokio::time::sleep(backoff(tries, asked)).await;
            }
            Step::Isolate | Step::ContinueNewest => {
                return Ok(through_other_versions(server, target, object).await);
            }
            Step::Vanished => return Err(PageError::Vanished(target.name.clone())),
            // The server's tokens have another form.
            Step::StartOver if !named => named = true,
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

/// Looks it up through the other versions that it may be stored in.
async fn through_other_versions(server: &Server, target: &Target, object: &Quarantined) -> Found {
    for version in target.others() {
        if let Ok((page, _)) =
            page(server, target, &by_key(target, version, &object.namespace, &object.name)).await
        {
            return found(page, object);
        }
    }
    Found::Unreadable
}

fn found(page: Page, object: &Quarantined) -> Found {
    let is_it = |item: &Item| *item.name == *object.name && *item.namespace == *object.namespace;
    page.items.into_iter().next().filter(is_it).map_or(Found::Gone, Found::Item)
}

fn by_key(target: &Target, version: &GroupVersion, namespace: &str, name: &str) -> String {
    let token = Token { resource_version: NEWEST, start: key(namespace, name) };
    format!("{}?limit=1&continue={}", target.list_path_at(version, ""), token.encode())
}

fn by_name(target: &Target, version: &GroupVersion, namespace: &str, name: &str) -> String {
    let list = target.list_path_at(version, namespace);
    format!("{list}?limit=1&fieldSelector=metadata.name%3D{}", segment(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_absent_only_if_a_list_shows_it() {
        let item = Item {
            namespace: "default".into(),
            name: "m".into(),
            uid: "uid".into(),
            resource_version: "7".into(),
            stale_fields: None,
            converted_fields: false,
        };
        let list = |items: serde_json::Value| {
            json!({"kind": "PartialObjectMetadataList", "apiVersion": "v1", "metadata": {}, "items": items})
                .to_string()
        };
        let object = |name: &str, uid: &str, version: &str| json!([{"metadata": {"namespace": "default", "name": name, "uid": uid, "resourceVersion": version}}]);
        for (body, expected) in [
            (list(json!([])), Some(Some(LookupResult::Absent))),
            (list(json!(null)), Some(Some(LookupResult::Absent))),
            (list(object("m", "uid", "7")), Some(Some(LookupResult::Unchanged))),
            (list(object("m", "uid", "8")), Some(Some(LookupResult::Changed))),
            (list(object("m", "other", "7")), Some(Some(LookupResult::Absent))),
            (list(object("n", "n", "7")), Some(Some(LookupResult::Absent))),
            (list(object("a", "a", "7")), Some(None)),
            ("{}".to_owned(), None),
            ("<html>".to_owned(), None),
            (json!({"kind": "WidgetList", "apiVersion": "v1", "metadata": {}}).to_string(), None),
            (json!({"kind": "WidgetList", "apiVersion": "v1", "items": []}).to_string(), None),
            (json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "items": []}).to_string(), None),
        ] {
            assert_eq!(read(body.as_bytes(), &item).ok(), expected, "{body}");
        }
    }
}
