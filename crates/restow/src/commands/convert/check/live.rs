//! Reads all live objects, page by page.

use restow_core::resource::inventory::Resource;
use restow_core::resource::name::{GroupResource, GroupVersion};
use restow_migrate::client::Server;
use serde::Deserialize;
use serde_json::Value;

use crate::connect::unreached;
use crate::error::CliError;

/// Objects in a page.
const PAGE: usize = 100;
/// How often a list may expire before it is given up.
const RESTARTS: u32 = 10;

/// The live objects of a resource in one version.
pub(super) struct Live<'a> {
    server: &'a Server,
    path: String,
    next: Option<String>,
    /// The key of the last object that was returned.
    last: String,
    restarts: u32,
}

#[derive(Deserialize)]
struct Page {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    metadata: PageMeta,
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(rename = "continue", default)]
    next: String,
}

impl<'a> Live<'a> {
    /// The objects in the storage version if it is served, else in the preferred one.
    pub(super) fn of(server: &'a Server, resource: &Resource) -> Option<Self> {
        let path = format!("{}/{}", resource.endpoint()?.path(), resource.name.resource);
        Some(Self { server, path, next: Some(String::new()), last: String::new(), restarts: 0 })
    }

    /// The objects in one version.
    pub(super) fn in_version(server: &'a Server, name: &GroupResource, version: &str) -> Self {
        let path = format!("{}/{}", GroupVersion::new(&name.group, version).path(), name.resource);
        Self { server, path, next: Some(String::new()), last: String::new(), restarts: 0 }
    }

    /// The next page; none after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Value>>, CliError> {
        while let Some(token) = self.next.take() {
            let path = format!("{}?limit={PAGE}&continue={token}", self.path);
            let page: Page = match self.server.get(&path).await {
                Ok(page) => page,
                // The list has expired: it begins again, and what was seen is skipped.
                Err(error) if error.code() == Some(410) && self.restarts < RESTARTS => {
                    self.restarts += 1;
                    self.next = Some(String::new());
                    continue;
                }
                Err(error) => return Err(unreached(self.server, &error)),
            };
            self.next = Some(page.metadata.next.clone()).filter(|next| !next.is_empty());
            let items = self.fresh(page);
            if !items.is_empty() {
                return Ok(Some(items));
            }
        }
        Ok(None)
    }

    /// The objects of a page that were not returned before, with the type that items of some lists leave out.
    fn fresh(&mut self, page: Page) -> Vec<Value> {
        let kind = page.kind.trim_end_matches("List").to_owned();
        let mut items: Vec<Value> =
            page.items.unwrap_or_default().into_iter().filter(|item| key(item) > self.last).collect();
        for item in &mut items {
            if item["kind"].is_null() {
                item["kind"] = kind.clone().into();
                item["apiVersion"] = page.api_version.clone().into();
            }
        }
        if let Some(last) = items.last() {
            self.last = key(last);
        }
        items
    }
}

/// The order of objects in the store.
fn key(object: &Value) -> String {
    format!("/{}", name(object))
}

/// Namespace and name.
pub(super) fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    match text("namespace") {
        "" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    }
}

/// The version of an object, without its group.
pub(super) fn version(object: &Value) -> String {
    GroupVersion::parse(object["apiVersion"].as_str().unwrap_or_default()).version
}
