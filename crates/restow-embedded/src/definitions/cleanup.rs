//! A definition goes when all of its objects have gone.

use kube::Client;
use restow_store::Range;
use serde_json::{Value, json};

use super::status::is_accepted;
use crate::api::Api;
use crate::failure::Failure;
use crate::meta::{finalizers, name};
use crate::objects::delete_stored;
use crate::stored::refused;

/// What holds a definition until its objects have gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Objects that are read at once.
const PAGE: usize = 500;

/// Deletes the objects of a definition that is being deleted, and lets go of it when none are left.
pub(super) async fn clean(api: &Api, client: &Client, definition: &Value) {
    let all = finalizers(definition);
    if !all.contains(&FINALIZER) {
        return;
    }
    // A definition whose names were never accepted has never had objects.
    let left = if is_accepted(definition) { delete_all(api, name(definition)).await } else { Ok(0) };
    match left {
        Ok(0) => {}
        Ok(left) => return tracing::info!(left, "objects hold the definition {}", name(definition)),
        Err(failure) => {
            return tracing::warn!("could not delete the objects of {}: {failure}", name(definition));
        }
    }
    let rest: Vec<&str> = all.into_iter().filter(|finalizer| *finalizer != FINALIZER).collect();
    let metadata = &definition["metadata"];
    let patch = json!({ "metadata": {
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "finalizers": rest,
    } });
    let path = format!("{DEFINITIONS}/{}", name(definition));
    let request = http::Request::patch(path).header(http::header::CONTENT_TYPE, crate::patch::MERGE);
    let Ok(request) = request.body(patch.to_string().into_bytes()) else { return };
    if let Err(error) = client.request::<Value>(request).await {
        tracing::debug!("a definition is not let go: {error}");
    }
}

/// Deletes all objects, and tells how many are left.
///
/// It goes by what is stored: objects stay in the store when none of their versions is served any more, and would be
/// there again as soon as somebody defines the resource anew.
async fn delete_all(api: &Api, definition: &str) -> Result<usize, Failure> {
    let served = api.registry.served();
    let resource = served.custom.get(definition).ok_or_else(Failure::unknown_path)?;
    if let Some(custom) = resource.custom() {
        // Creates that were let in before the deletion began; later ones are refused.
        custom.writer().settle().await;
    }
    let mut range = Range { prefix: resource.prefix.clone(), start: None, limit: PAGE, revision: None };
    let mut left = 0;
    loop {
        let listed = api.store.list(range.clone()).await.map_err(|error| refused(&error))?;
        range.start = listed.entries.last().map(|entry| format!("{}\0", entry.key));
        for entry in listed.entries {
            left += usize::from(!delete_stored(api, resource, entry).await?);
        }
        if listed.remaining == 0 {
            return Ok(left);
        }
    }
}
