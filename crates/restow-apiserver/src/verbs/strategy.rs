//! The special rules of Namespaces, Secrets, definitions and other built-in resources.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::http::status::{Cause, StatusError};
use crate::object::meta::delete::Deletion;
use crate::object::meta::{Endpoint, finalizers, is_deleting, name};
use crate::object::protobuf;
use crate::registry::definition;
use crate::registry::definition::conditions::{FINALIZER, set, terminating};
use crate::registry::resource::Implementation;
use crate::registry::validation::{built_in, role_binding, storage_version};
use crate::verbs::namespace_lifecycle::IMMORTAL;
use crate::verbs::request::ResourceRequest;

const DEFINITION: &str = "CustomResourceDefinition";

/// Prepares an object for a create.
pub(super) fn on_create(request: &ResourceRequest, object: &mut Value) -> Result<(), StatusError> {
    match kind(request) {
        "Namespace" => {
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
            object["status"] = json!({ "phase": "Active" });
            label_namespace(object);
        }
        "Secret" => complete_secret(object),
        "RoleBinding" | "ClusterRoleBinding" => role_binding::set_defaults(object),
        "Deployment" => object["status"] = json!({}),
        "Pod" => object["status"] = json!({ "phase": "Pending" }),
        DEFINITION => {
            definition::set_defaults(object);
            definition::prepare_create(object);
        }
        _ => {}
    }
    Ok(())
}

/// Prepares an object for an update.
pub(super) fn on_update(
    request: &ResourceRequest,
    object: &mut Value,
    old: &Value,
) -> Result<(), StatusError> {
    match (kind(request), request.target.subresource.as_str()) {
        ("Namespace", "finalize") => {
            let finalizers = object["spec"]["finalizers"].take();
            *object = old.clone();
            object["spec"] =
                if finalizers.is_array() { json!({ "finalizers": finalizers }) } else { json!({}) };
        }
        ("Namespace", "") => {
            object["spec"] = old["spec"].clone();
            label_namespace(object);
        }
        ("Secret", _) => complete_secret(object),
        ("RoleBinding" | "ClusterRoleBinding", _) => role_binding::set_defaults(object),
        (DEFINITION, "") => {
            definition::set_defaults(object);
            definition::prepare_update(object, old);
        }
        _ => {}
    }
    Ok(())
}

/// Removes empty fields, as kube-apiserver does for built-in objects.
pub(super) fn omit_empty(request: &ResourceRequest, object: &mut Value) {
    if let Implementation::BuiltIn(built_in) = &request.resource.implementation {
        protobuf::omit_empty(&request.view.api_version, built_in.kind, object);
    }
}

/// The errors of an object, besides those of its metadata.
pub(super) fn validate(request: &ResourceRequest, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    match &request.resource.implementation {
        Implementation::Custom(custom) => {
            custom.validate(&request.target.version, request.endpoint(), object, old)
        }
        Implementation::BuiltIn(built_in) => match (built_in.kind, old, request.endpoint()) {
            (DEFINITION, None, _) => definition::validate::create(object),
            (DEFINITION, Some(old), Endpoint::Main) => definition::validate::update(object, old),
            ("StorageVersion", Some(_), Endpoint::Status) => storage_version::validate(object),
            (kind, old, Endpoint::Main) => built_in::validate(kind, object, old),
            _ => Vec::new(),
        },
    }
}

/// Warnings about a created or changed object.
pub(super) fn warnings(request: &ResourceRequest, object: &Value) -> Vec<String> {
    match kind(request) {
        DEFINITION => definition::warnings(object),
        _ => Vec::new(),
    }
}

/// Refuses to delete protected objects.
pub(super) fn on_delete(request: &ResourceRequest, object: &Value) -> Result<(), StatusError> {
    if kind(request) == "Namespace" && IMMORTAL.contains(&name(object)) {
        let why = "this namespace may not be deleted";
        return Err(StatusError::forbidden_object(&request.resource.name, name(object), why));
    }
    Ok(())
}

/// Adds the finalizer of objects that must not be deleted before their contents.
pub(super) fn hold(request: &ResourceRequest, object: &mut Value) {
    if kind(request) != DEFINITION || is_deleting(object) {
        return;
    }
    let mut all: Vec<String> = finalizers(object).into_iter().map(str::to_owned).collect();
    if !all.iter().any(|finalizer| finalizer == FINALIZER) {
        all.push(FINALIZER.to_owned());
    }
    object["metadata"]["finalizers"] = json!(all);
    set(object, &terminating(), restow_clock::now());
}

/// The deletion of an object. Some objects wait for their contents to be deleted first.
pub(super) fn deletion(request: &ResourceRequest, object: &Value, decided: Deletion) -> Deletion {
    match (kind(request), decided) {
        ("Namespace", Deletion::Remove) if has_spec_finalizers(object) => {
            if is_deleting(object) {
                return Deletion::Pending;
            }
            let mut marked = object.clone();
            marked["metadata"]["deletionTimestamp"] = json!(crate::object::meta::time(restow_clock::now()));
            marked["status"]["phase"] = json!("Terminating");
            Deletion::Mark(marked)
        }
        ("Namespace", Deletion::Mark(mut marked)) => {
            marked["status"]["phase"] = json!("Terminating");
            Deletion::Mark(marked)
        }
        (_, decided) => decided,
    }
}

/// Whether an object without finalizers in its metadata may be deleted.
pub(super) fn may_go(request: &ResourceRequest, object: &Value) -> bool {
    kind(request) != "Namespace" || (!has_spec_finalizers(object) && finalizers(object).is_empty())
}

fn kind(request: &ResourceRequest) -> &str {
    match &request.resource.implementation {
        Implementation::BuiltIn(built_in) => built_in.kind,
        Implementation::Custom(_) => "",
    }
}

fn has_spec_finalizers(namespace: &Value) -> bool {
    namespace["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

fn label_namespace(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    let labels = &mut namespace["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    labels["kubernetes.io/metadata.name"] = name;
}

/// Encodes stringData into data, and defaults the type of a Secret.
fn complete_secret(secret: &mut Value) {
    let Some(fields) = secret.as_object_mut() else { return };
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
        for (key, text) in texts {
            data[key] = json!(STANDARD.encode(text.as_str().unwrap_or_default()));
        }
    }
    if fields.get("type").and_then(Value::as_str).unwrap_or_default().is_empty() {
        fields.insert("type".to_owned(), json!("Opaque"));
    }
}
