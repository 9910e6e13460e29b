//! Looks up how many objects there are, and single ones among them.

use restow_core::outcome::backoff;
use restow_core::page::{Refusal, Step, step};
use restow_core::progress::Quarantined;
use restow_core::resource::GroupVersion;
use restow_core::token::{NEWEST, Token};

use crate::pages::{Item, Page, PageError, Target, key, page, segment};
use crate::server::Server;

/// How many objects a resource has, as far as its server tells.
pub async fn count(server: &Server, target: &Target) -> Result<Option<u64>, Refusal> {
    let page = first_page(server, target).await?;
    let shown = page.items.len() as u64;
    Ok(match page.remaining {
        Some(remaining) => Some(remaining + shown),
        None if page.last => Some(shown),
        None => None,
    })
}

/// The first object of all, if there is one that can be read.
pub(crate) async fn first(server: &Server, target: &Target) -> Option<Item> {
    first_page(server, target).await.ok()?.items.into_iter().next()
}

async fn first_page(server: &Server, target: &Target) -> Result<Page, Refusal> {
    let mut refused = None;
    for version in target.readable() {
        let path = format!("{}?limit=1", target.list_path_at(version, ""));
        match page(server, target, &path).await {
            Ok((page, _)) => return Ok(page),
            Err(refusal) => refused = refused.or(Some(refusal)),
        }
    }
    Err(refused.unwrap_or_default())
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
    // A list filtered by name waits for the watch cache, which never fills while any object cannot be read.
    let mut named = false;
    let mut tries = 0;
    loop {
        let path = if named { by_name } else { by_key };
        let refusal = match page(server, target, &path(target, &target.version, object)).await {
            Ok((page, _)) => return Ok(found(page, object)),
            Err(refusal) => refusal,
        };
        match step(&refusal, tries, true) {
            Step::Wait(asked) => {
                tries += 1;
                tokio::time::sleep(backoff(tries, asked)).await;
            }
            Step::Isolate | Step::ContinueNewest => return Ok(elsewhere(server, target, object).await),
            Step::Vanished => return Err(PageError::Vanished(target.name.clone())),
            // A server whose tokens have another form.
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

/// Looks it up through the other versions it may be stored in.
async fn elsewhere(server: &Server, target: &Target, object: &Quarantined) -> Found {
    for version in target.others() {
        if let Ok((page, _)) = page(server, target, &by_key(target, version, object)).await {
            return found(page, object);
        }
    }
    Found::Unreadable
}

fn found(page: Page, object: &Quarantined) -> Found {
    let is_it = |item: &Item| *item.name == *object.name && *item.namespace == *object.namespace;
    page.items.into_iter().next().filter(is_it).map_or(Found::Gone, Found::Item)
}

fn by_key(target: &Target, version: &GroupVersion, object: &Quarantined) -> String {
    let token = Token { resource_version: NEWEST, start: key(&object.namespace, &object.name) };
    format!("{}?limit=1&continue={}", target.list_path_at(version, ""), token.encode())
}

fn by_name(target: &Target, version: &GroupVersion, object: &Quarantined) -> String {
    let list = target.list_path_at(version, &object.namespace);
    format!("{list}?limit=1&fieldSelector=metadata.name%3D{}", segment(&object.name))
}
