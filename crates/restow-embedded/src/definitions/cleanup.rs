//! A definition goes when all of its objects have gone.

use kube::Client;
use serde_json::{Value, json};

use crate::api::Api;
use crate::meta::{finalizers, name};

/// What holds a definition until its objects have gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Deletes the objects of a definition that is being deleted, and lets go of it when none are left.
pub(super) async fn clean(api: &Api, client: &Client, definition: &Value) {
    let all = finalizers(definition);
    if !all.contains(&FINALIZER) {
        return;
    }
    match delete_all(api, client, name(definition)).await {
        Ok(0) => {}
        Ok(left) => return tracing::info!(left, "objects hold the definition {}", name(definition)),
        Err(error) => return tracing::warn!("objects are not deleted: {error}"),
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
async fn delete_all(api: &Api, client: &Client, definition: &str) -> Result<usize, kube::Error> {
    let served = api.registry.served();
    let Some(resource) = served.custom.get(definition) else { return Ok(0) };
    let Some(version) = resource.versions.first() else { return Ok(0) };
    let path = format!("/apis/{}/{}/{}", resource.name.group, version.name, resource.name.resource);
    let get = |path: &str| http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError);
    let mut left = 0;
    let mut next = String::new();
    loop {
        let list: Value = client.request(get(&format!("{path}?limit=500&continue={next}"))?).await?;
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        for item in items {
            let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
            let prefix = format!("/apis/{}/{}", resource.name.group, version.name);
            let path = match text("namespace") {
                "" => format!("{prefix}/{}/{}", resource.name.resource, text("name")),
                namespace => {
                    format!("{prefix}/namespaces/{namespace}/{}/{}", resource.name.resource, text("name"))
                }
            };
            let request = http::Request::delete(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
            match client.request::<Value>(request).await {
                Ok(answer) => left += usize::from(answer["kind"] != "Status"),
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        next = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if next.is_empty() {
            return Ok(left);
        }
    }
}
