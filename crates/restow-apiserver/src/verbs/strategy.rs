//! What single built-ins have of their own: Namespaces, Secrets and definitions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::http::status::{Cause, Failure};
use crate::object::meta::delete::Deletion;
use crate::object::meta::{Endpoint, finalizers, is_deleting, name};
use crate::object::protobuf;
use crate::registry::definition;
use crate::registry::definition::conditions::{FINALIZER, set, terminating};
use crate::registry::resource::Nature;
use crate::registry::validation::{built_in, role_binding, storage_version};
use crate::verbs::call::Call;
use crate::verbs::namespace_lifecycle::IMMORTAL;

const DEFINITION: &str = "CustomResourceDefinition";

/// What a create adds to an object.
pub(super) fn on_create(call: &Call, object: &mut Value) -> Result<(), Failure> {
    match kind(call) {
        "Namespace" => {
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
            object["status"] = json!({ "phase": "Active" });
            label_namespace(object);
        }
        "Secret" => complete_secret(object),
        "RoleBinding" | "ClusterRoleBinding" => role_binding::complete(object),
        "Deployment" => object["status"] = json!({}),
        "Pod" => object["status"] = json!({ "phase": "Pending" }),
        DEFINITION => {
            definition::fill(object);
            definition::prepare_create(object);
        }
        _ => {}
    }
    Ok(())
}

/// What an update adds to an object, or keeps of it.
pub(super) fn on_update(call: &Call, object: &mut Value, old: &Value) -> Result<(), Failure> {
    match (kind(call), call.target.subresource.as_str()) {
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
        ("RoleBinding" | "ClusterRoleBinding", _) => role_binding::complete(object),
        (DEFINITION, "") => {
            definition::fill(object);
            definition::prepare_update(object, old);
        }
        _ => {}
    }
    Ok(())
}

/// Leaves out what is empty, as built-ins are stored and shown.
pub(super) fn settle(call: &Call, object: &mut Value) {
    if let Nature::BuiltIn(built_in) = &call.resource.nature {
        protobuf::settle(&call.view.api_version, built_in.kind, object);
    }
}

/// What is wrong with an object beside its metadata.
pub(super) fn validate(call: &Call, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    match &call.resource.nature {
        Nature::Custom(custom) => custom.validate(&call.target.version, call.endpoint(), object, old),
        Nature::BuiltIn(built_in) => match (built_in.kind, old, call.endpoint()) {
            (DEFINITION, None, _) => definition::validate::create(object),
            (DEFINITION, Some(old), Endpoint::Main) => definition::validate::update(object, old),
            ("StorageVersion", Some(_), Endpoint::Status) => storage_version::validate(object),
            (kind, old, Endpoint::Main) => built_in::validate(kind, object, old),
            _ => Vec::new(),
        },
    }
}

/// Refuses deletes of what cannot go.
pub(super) fn on_delete(call: &Call, object: &Value) -> Result<(), Failure> {
    if kind(call) == "Namespace" && IMMORTAL.contains(&name(object)) {
        let why = "this namespace may not be deleted";
        return Err(Failure::forbidden_object(&call.resource.name, name(object), why));
    }
    Ok(())
}

/// Holds what must not go before its contents have.
pub(super) fn hold(call: &Call, object: &mut Value) {
    if kind(call) != DEFINITION || is_deleting(object) {
        return;
    }
    let mut all: Vec<String> = finalizers(object).into_iter().map(str::to_owned).collect();
    if !all.iter().any(|finalizer| finalizer == FINALIZER) {
        all.push(FINALIZER.to_owned());
    }
    object["metadata"]["finalizers"] = json!(all);
    set(object, &terminating(), restow_clock::now());
}

/// What becomes of an object that would go or be marked: some wait for their contents to go first.
pub(super) fn deletion(call: &Call, object: &Value, decided: Deletion) -> Deletion {
    match (kind(call), decided) {
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

/// Whether an object whose metadata holds it no longer is held by nothing else.
pub(super) fn may_go(call: &Call, object: &Value) -> bool {
    kind(call) != "Namespace" || (!has_spec_finalizers(object) && finalizers(object).is_empty())
}

fn kind(call: &Call) -> &str {
    match &call.resource.nature {
        Nature::BuiltIn(built_in) => built_in.kind,
        Nature::Custom(_) => "",
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

/// Text becomes data, and a Secret of no type is of the usual one.
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
