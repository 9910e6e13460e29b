//! Deletes the objects of a definition that is being deleted, then the definition.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use kube::Client;
use restow_lease::Stop;
use restow_store::Range;
use serde_json::{Value, json};

use super::status::is_accepted;
use super::stored::{PREFIX, is_built_in};
use crate::http::status::StatusError;
use crate::object::meta::delete::Options;
use crate::object::meta::{finalizers, name, text};
use crate::object::stored::{DecodeScope, refused};
use crate::registry::definition::conditions::FINALIZER;
use crate::registry::resource::Resource;
use crate::verbs::api::Api;
use crate::verbs::delete::delete_stored;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The page size of lists.
const PAGE: usize = 500;
/// How many objects are deleted concurrently.
const AT_ONCE: usize = 16;

/// Whether a definition that is being deleted has objects, whatever its status says: the status may never have been
/// written. Objects of a built-in resource of the same name do not count.
pub(super) async fn has_objects(api: &Api, definition: &Value) -> Result<bool, StatusError> {
    let served = api.registry.served();
    if is_built_in(api, definition) {
        return Ok(false);
    }
    if is_accepted(definition) || served.custom.contains_key(name(definition)) {
        return Ok(true);
    }
    let spec = |path: &str| definition["spec"].pointer(path).and_then(Value::as_str).unwrap_or_default();
    let prefix = format!("/registry/{}/{}/", spec("/group"), spec("/names/plural"));
    let range = Range { prefix, start: None, limit: 1, revision: None };
    let listed = api.store.list(range).await.map_err(|error| refused(&error))?;
    Ok(!listed.entries.is_empty())
}

/// Deletes the objects of a definition that is being deleted, and removes its finalizer when none are left.
pub(super) async fn clean(api: Arc<Api>, client: Client, definition: Value, has_objects: bool, stop: Stop) {
    let all = finalizers(&definition);
    if !all.contains(&FINALIZER) {
        return;
    }
    let left = if has_objects { delete_all(&api, &definition, &stop).await } else { Ok(0) };
    match left {
        Ok(0) => {}
        Ok(left) => {
            return tracing::info!(
                left,
                "objects with finalizers keep the CustomResourceDefinition {} from being deleted",
                name(&definition)
            );
        }
        Err(failure) => {
            return tracing::warn!("could not delete the objects of {}: {failure}", name(&definition));
        }
    }
    let rest: Vec<&str> = all.into_iter().filter(|finalizer| *finalizer != FINALIZER).collect();
    let metadata = &definition["metadata"];
    let patch = json!({ "metadata": {
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "finalizers": rest,
    } });
    let path = format!("{DEFINITIONS}/{}", name(&definition));
    let request = http::Request::patch(path).header(http::header::CONTENT_TYPE, crate::object::patch::MERGE);
    let Ok(request) = request.body(patch.to_string().into_bytes()) else { return };
    if let Err(error) = client.request::<Value>(request).await {
        tracing::debug!("could not remove the finalizer of a CustomResourceDefinition: {error}");
    }
}

/// Deletes all objects, and returns how many are left.
///
/// It lists the store and not the API: objects whose versions are no longer served are still stored, and would reappear
/// as soon as the resource is defined again.
async fn delete_all(api: &Api, definition: &Value, stop: &Stop) -> Result<usize, StatusError> {
    let served = api.registry.served();
    let resource = served.custom.get(name(definition)).ok_or_else(StatusError::unknown_path)?;
    if let Some(custom) = resource.custom() {
        // Creates that were admitted before the deletion began; later ones are refused.
        custom.writer().settle().await;
    }
    let mut range = Range { prefix: resource.prefix.clone(), start: None, limit: PAGE, revision: None };
    let (mut left, mut failed) = (0, None);
    loop {
        let listed = api.store.list(range.clone()).await.map_err(|error| refused(&error))?;
        // Another server may have removed the finalizer, and the definition may be a new one: its objects stay.
        if range.revision.is_none() && !is_there(api, definition).await? {
            return Ok(0);
        }
        range.start = listed.entries.last().map(|entry| format!("{}\0", entry.key));
        range.revision = Some(listed.revision);
        let each = |entry| delete_unless_stopped(api, resource, entry, stop);
        let mut deleted = stream::iter(listed.entries).map(each).buffer_unordered(AT_ONCE);
        while let Some(deleted) = deleted.next().await {
            // An object that cannot be deleted does not stop the others.
            match deleted {
                Ok(is_gone) => left += usize::from(!is_gone),
                Err(failure) => failed = Some(failure),
            }
        }
        if listed.remaining == 0 || stop.is_stopped() {
            return failed.map_or(Ok(left), Err);
        }
    }
}

/// Starts no delete after the server began to stop, and completes the current one.
async fn delete_unless_stopped(
    api: &Api,
    resource: &Arc<Resource>,
    entry: restow_store::Entry,
    stop: &Stop,
) -> Result<bool, StatusError> {
    if stop.is_stopped() { Ok(false) } else { delete_stored(api, resource, entry, &Options::default()).await }
}

/// Whether this very definition is still stored.
async fn is_there(api: &Api, definition: &Value) -> Result<bool, StatusError> {
    let kind = api.registry.built_in("apiextensions.k8s.io", "customresourcedefinitions");
    let entry = api.entry(&format!("{PREFIX}{}", name(definition))).await?;
    let Some((entry, kind)) = entry.zip(kind) else { return Ok(false) };
    Ok(text(&api.decode(&kind, entry, DecodeScope::Metadata)?, "uid") == text(definition, "uid"))
}
