//! OpenAPI v3 documents, for clients that explain and validate objects.

mod paths;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::docs::groups::{Contents, Group, groups};
use crate::http::body::Body;
use crate::http::json;
use crate::http::request_info::RequestInfo;
use crate::http::response::json_response;
use crate::http::status::StatusError;
use crate::registry::resource::{Implementation, Resource};
use crate::verbs::api::Api;

/// The name of the ObjectMeta schema.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Answers a request for a document.
pub(crate) fn answer(
    api: &Api,
    head: &http::request::Parts,
    info: &RequestInfo,
) -> Result<Response<Body>, StatusError> {
    let path = info.path.trim_end_matches('/');
    let groups = groups(&api.registry.served());
    if path == "/openapi/v3" {
        return Ok(json_response(&index(&groups)));
    }
    if path == "/openapi/v2" {
        return Ok(old_version());
    }
    let wanted = path.strip_prefix("/openapi/v3/").unwrap_or_default();
    for group in &groups {
        for (version, contents) in &group.versions {
            if wanted == document_path(&group.name, version) {
                return Ok(document(api, head, &group.name, version, contents));
            }
        }
    }
    Err(StatusError::unknown_path())
}

/// An empty OpenAPI v2 document in protobuf: kubectl asks for it if v3 does not have a kind.
fn old_version() -> Response<Body> {
    // A document whose field 1, the version, is "2.0".
    let mut response = Response::new(Body::from(Bytes::from_static(b"\x0a\x032.0")));
    let media = HeaderValue::from_static("application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn index(groups: &[Group]) -> Value {
    let mut paths = Map::new();
    for group in groups {
        for (version, contents) in &group.versions {
            let place = document_path(&group.name, version);
            let hash = hash(&group.name, version, contents);
            let url = format!("/openapi/v3/{place}?hash={hash}");
            paths.insert(place, json!({ "serverRelativeURL": url }));
        }
    }
    json!({ "paths": paths })
}

/// A hash of the contents of a version.
fn hash(group: &str, version: &str, contents: &Contents) -> String {
    let mut digest = Sha256::new();
    digest.update(concat!(env!("CARGO_PKG_VERSION"), "/"));
    digest.update(format!("{group}/{version}"));
    for (resource, _) in &contents.resources {
        if let Some(custom) = resource.custom() {
            digest.update(custom.object["spec"].to_string());
        }
    }
    digest.finalize().iter().map(|byte| format!("{byte:02X}")).collect()
}

fn document(
    api: &Api,
    head: &http::request::Parts,
    group: &str,
    version: &str,
    contents: &Contents,
) -> Response<Body> {
    let hash = hash(group, version, contents);
    let tag = format!("\"{hash}\"");
    let known = head.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response = if known == Some(tag.as_str()) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let make = || json::encode(&make(group, version, contents));
        Response::new(Body::from(api.documents.get_or_make(hash, make)))
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

fn make(group: &str, version: &str, contents: &Contents) -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let mut kinds: Vec<(String, &Resource, Option<Value>)> = Vec::new();
    for (resource, _) in &contents.resources {
        match &resource.implementation {
            Implementation::BuiltIn(built_in) => {
                kinds.push(((built_in.typed.schema)(&mut generator), resource, None));
            }
            Implementation::Custom(custom) => {
                generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>();
                let mut parts: Vec<&str> = group.split('.').rev().collect();
                parts.extend([version, resource.kind.as_str()]);
                kinds.push((parts.join("."), resource, Some(custom.schema(version))));
            }
        }
    }
    let mut schemas: Map<String, Value> = generator.take_definitions(true);
    let mut paths = Map::new();
    for (name, resource, custom) in kinds {
        if let Some(schema) = custom {
            schemas.insert(name.clone(), completed(schema));
        }
        if let Some(schema) = schemas.get_mut(&name) {
            let kind = json!({ "group": group, "version": version, "kind": resource.kind });
            schema["x-kubernetes-group-version-kind"] = json!([kind]);
            if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|field| field != "metadata");
            }
        }
        paths::add(&mut paths, resource, version, &name);
    }
    json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "v1.36.3" },
        "paths": paths, "components": { "schemas": schemas },
    })
}

/// The schema of a custom resource with apiVersion, kind and metadata.
fn completed(mut schema: Value) -> Value {
    if !schema.is_object() {
        schema = json!({ "type": "object" });
    }
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    let text = |description: &str| json!({ "type": "string", "description": description });
    schema["properties"]["apiVersion"] = text("The version of the schema of this object.");
    schema["properties"]["kind"] = text("What this object is.");
    let metadata = format!("#/components/schemas/{OBJECT_META}");
    schema["properties"]["metadata"] = json!({
        "description": "Standard object's metadata.", "allOf": [{ "$ref": metadata }],
    });
    schema
}
