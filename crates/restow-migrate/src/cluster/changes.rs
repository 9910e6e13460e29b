//! Watches what the agreement of a run rests on: the resource's CustomResourceDefinition and its StorageVersion.
//!
//! An event makes a run ask the API servers in the middle of a page. Without permission to watch, it asks after each page.

use std::time::Duration;

use bytes::BytesMut;
use futures::FutureExt as _;
use futures::future::select_all;
use http::Method;
use http_body_util::BodyExt as _;
use kube::client::Body;
use restow_core::protocol::storage_version;
use restow_core::resource::inventory::Resource;
use serde::Deserialize;

use super::discovery::crds_path;
use super::registered::STORAGE_VERSIONS;
use crate::client::{METADATA, Server};

/// The `timeoutSeconds` of a watch.
const WATCH_SECONDS: u32 = 55;
/// How long a watch may stay silent before it is opened again; longer than it lasts.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// The pause before a watch that ended is opened again.
const REOPEN_AFTER: Duration = Duration::from_secs(1);
/// The size of an event that is read. A larger one counts as a change.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// The objects that the agreement on one resource rests on.
pub(crate) struct Changes<'a> {
    server: &'a Server,
    watches: Vec<Watch>,
}

/// One object that is watched.
struct Watch {
    path: String,
    /// The resourceVersion that the last event showed; empty after a deletion.
    seen: Option<String>,
}

impl<'a> Changes<'a> {
    pub(crate) fn of(server: &'a Server, resource: &Resource) -> Self {
        let watch = |all: &str, name: String| Watch {
            path: format!(
                "{all}?watch=true&timeoutSeconds={WATCH_SECONDS}&fieldSelector=metadata.name%3D{name}"
            ),
            seen: None,
        };
        let mut watches = vec![watch(STORAGE_VERSIONS, storage_version::name(&resource.name))];
        watches.extend(resource.crd.as_ref().map(|crd| watch(&crds_path(), crd.name.to_string())));
        Self { server, watches }
    }

    /// Waits for the next change.
    pub(crate) async fn next(&mut self) {
        let server = self.server;
        select_all(self.watches.iter_mut().map(|watch| watch.changed(server).boxed())).await;
    }
}

impl Watch {
    async fn changed(&mut self, server: &Server) {
        loop {
            if let Ok(response) = server.open(Method::GET, &self.path, METADATA, None).await {
                let status = response.status().as_u16();
                match status {
                    200 if self.follow(response.into_body()).await => return,
                    // Most clusters do not serve StorageVersions.
                    404 => {
                        tracing::debug!(
                            path = self.path,
                            "not served; asking the API servers after each page"
                        );
                        return std::future::pending().await;
                    }
                    403 | 405 => {
                        tracing::info!(
                            path = self.path,
                            status,
                            "may not be watched; asking the API servers after each page"
                        );
                        return std::future::pending().await;
                    }
                    _ => {}
                }
            }
            tokio::time::sleep(REOPEN_AFTER).await;
        }
    }

    /// Reads one watch to its end; true if it showed a change.
    async fn follow(&mut self, mut body: Body) -> bool {
        let mut buffer = BytesMut::new();
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(SILENCE_TIMEOUT, body.frame()).await {
            buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                if self.is_change(&buffer.split_to(end + 1)) {
                    return true;
                }
            }
            if buffer.len() > MAX_EVENT_BYTES {
                return true;
            }
        }
        false
    }

    /// Whether an event shows a different state of the object than the event before.
    fn is_change(&mut self, line: &[u8]) -> bool {
        let Ok(event) = serde_json::from_slice::<Event>(line) else { return false };
        let now = match event.kind.as_str() {
            "ADDED" | "MODIFIED" => event.object.metadata.resource_version,
            "DELETED" => String::new(),
            _ => return false,
        };
        let before = self.seen.replace(now);
        before.is_some() && before != self.seen
    }
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    object: Object,
}

#[derive(Default, Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Meta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    resource_version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_with_another_resource_version_is_a_change() {
        let mut watch = Watch { path: String::new(), seen: None };
        for (kind, version, changed) in [
            ("ADDED", "1", false),
            // A new watch begins with the current state.
            ("ADDED", "1", false),
            ("MODIFIED", "2", true),
            ("BOOKMARK", "3", false),
            ("ERROR", "", false),
            ("ADDED", "2", false),
            // It changed between two watches.
            ("ADDED", "5", true),
            ("DELETED", "6", true),
            ("ADDED", "7", true),
        ] {
            let line =
                serde_json::json!({"type": kind, "object": {"metadata": {"resourceVersion": version}}});
            assert_eq!(watch.is_change(line.to_string().as_bytes()), changed, "{kind} {version}");
        }
        assert!(!watch.is_change(b"<html>"));
    }
}
