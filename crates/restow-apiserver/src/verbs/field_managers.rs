//! Who set which field of an object, recorded with every write of it.

use serde_json::{Value, json};

use crate::object::managed_fields::{Write, track};
use crate::object::meta::{Endpoint, field};
use crate::object::structure::{Structure, built_in};
use crate::registry::resource::{Nature, Resource};
use crate::verbs::call::Call;

/// Records what a call changes in an object.
pub(super) fn record(call: &Call, object: &mut Value, live: Option<&Value>) {
    let resource = &call.resource;
    let is_known = |api_version: &str| is_known(resource, api_version);
    let write = Write {
        manager: &call.manager,
        subresource: &call.target.subresource,
        api_version: &call.view.api_version,
        now: restow_clock::now(),
        ignored: ignored(call),
        is_known: &is_known,
    };
    match &resource.nature {
        Nature::BuiltIn(own) => {
            let structure = Structure::BuiltIn(built_in::kind(own.group, own.kind));
            track(object, live, &built_in::zero(own.group, own.kind), structure, &write);
        }
        Nature::Custom(custom) => {
            let schema = custom.structure(&call.target.version);
            track(object, live, &json!({}), schema.map_or(Structure::Deduced, Structure::CustomRoot), &write);
        }
    }
}

/// The fields that an endpoint does not change.
fn ignored(call: &Call) -> &'static [&'static str] {
    let apart = call.resource.has(&call.target.version, "status");
    match (call.endpoint(), call.resource.custom()) {
        (Endpoint::Main, _) if apart => &["status"],
        (Endpoint::Main, _) => &[],
        (Endpoint::Status, Some(_)) => &["metadata", "spec"],
        (Endpoint::Status, None) => &["spec"],
    }
}

/// Whether objects of a resource can be had in a version; those of built-ins stay so for ever.
fn is_known(resource: &Resource, api_version: &str) -> bool {
    let Some(custom) = resource.custom() else { return true };
    custom.decodable().iter().any(|version| version.to_string() == api_version)
}

/// Whether all that is recorded of an object stays if nothing of it changes.
pub(super) fn is_lasting(call: &Call, object: &Value) -> bool {
    let entries = field(object, "managedFields").and_then(Value::as_array);
    let mut versions = entries.into_iter().flatten().filter_map(|entry| entry["apiVersion"].as_str());
    versions.all(|version| version == call.view.api_version || is_known(&call.resource, version))
}
