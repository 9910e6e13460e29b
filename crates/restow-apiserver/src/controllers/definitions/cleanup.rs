//! A definition goes when all of its objects have gone.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use kube::Client;
use restow_lease::Stop;
use restow_store::Range;
use serde_json::{Value, json};

use super::status::is_accepted;
use super::stored::{PREFIX, is_built_in};
use crate::http::status::Failure;
use crate::object::meta::delete::Options;
use crate::object::meta::{finalizers, name, text};
use crate::object::stored::{Extent, refused};
use crate::registry::definition::conditions::FINALIZER;
use crate::registry::resource::Resource;
use crate::verbs::api::Api;
use crate::verbs::delete::delete_stored;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Objects that are read at once.
const PAGE: usize = 500;
/// Objects that are deleted at once.
const AT_ONCE: usize = 16;

/// Whether a definition that is being deleted has made objects, whatever its status says: that may never have been
/// written. What a built-in resource of its name has stored is not its own.
pub(super) async fn has_objects(api: &Api, definition: &Value) -> Result<bool, Failure> {
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

/// Deletes the objects of a definition that is being deleted, and lets go of it when none are left.
pub(super) async fn clean(api: Arc<Api>, client: Client, definition: Value, has_objects: bool, stop: Stop) {
    let all = finalizers(&definition);
    if !all.contains(&FINALIZER) {
        return;
    }
    let left = if has_objects { delete_all(&api, &definition, &stop).await } else { Ok(0) };
    match left {
        Ok(0) => {}
        Ok(left) => return tracing::info!(left, "objects hold the definition {}", name(&definition)),
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
        tracing::debug!("a definition is not let go: {error}");
    }
}

/// Deletes all objects, and tells how many are left.
///
/// It goes by what is stored: objects stay in the store when none of their versions is served any more, and would be
/// there again as soon as somebody defines the resource anew.
async fn delete_all(api: &Api, definition: &Value, stop: &Stop) -> Result<usize, Failure> {
    let served = api.registry.served();
    let resource = served.custom.get(name(definition)).ok_or_else(Failure::unknown_path)?;
    if let Some(custom) = resource.custom() {
        // Creates that were let in before the deletion began; later ones are refused.
        custom.writer().settle().await;
    }
    let mut range = Range { prefix: resource.prefix.clone(), start: None, limit: PAGE, revision: None };
    let (mut left, mut failed) = (0, None);
    loop {
        let listed = api.store.list(range.clone()).await.map_err(|error| refused(&error))?;
        // Another server may have let go of the definition, and somebody made it anew: those objects stay.
        if range.revision.is_none() && !is_there(api, definition).await? {
            return Ok(0);
        }
        range.start = listed.entries.last().map(|entry| format!("{}\0", entry.key));
        range.revision = Some(listed.revision);
        let each = |entry| delete_unless_stopped(api, resource, entry, stop);
        let mut deleted = stream::iter(listed.entries).map(each).buffer_unordered(AT_ONCE);
        while let Some(deleted) = deleted.next().await {
            // One that cannot be deleted does not keep the others.
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

/// Begins nothing when it is time to stop, and ends what was begun.
async fn delete_unless_stopped(
    api: &Api,
    resource: &Arc<Resource>,
    entry: restow_store::Entry,
    stop: &Stop,
) -> Result<bool, Failure> {
    if stop.is_stopped() { Ok(false) } else { delete_stored(api, resource, entry, &Options::default()).await }
}

/// Whether this very definition is stored still.
async fn is_there(api: &Api, definition: &Value) -> Result<bool, Failure> {
    let kind = api.registry.built_in("apiextensions.k8s.io", "customresourcedefinitions");
    let entry = api.entry(&format!("{PREFIX}{}", name(definition))).await?;
    let Some((entry, kind)) = entry.zip(kind) else { return Ok(false) };
    Ok(text(&api.decode(&kind, entry, Extent::Metadata)?, "uid") == text(definition, "uid"))
}
