//! Records field managers in managedFields with every write.

use serde_json::{Value, json};

use crate::object::managed_fields::{Write, track};
use crate::object::meta::{Endpoint, field};
use crate::object::structure::{Structure, built_in};
use crate::registry::resource::{Implementation, Resource};
use crate::verbs::request::ResourceRequest;

/// Records which fields a request changes.
pub(super) fn record(request: &ResourceRequest, object: &mut Value, live: Option<&Value>) {
    let resource = &request.resource;
    let is_known = |api_version: &str| is_known(resource, api_version);
    let write = Write {
        manager: &request.manager,
        subresource: &request.target.subresource,
        api_version: &request.view.api_version,
        now: restow_clock::now(),
        ignored: ignored(request),
        is_known: &is_known,
    };
    match &resource.implementation {
        Implementation::BuiltIn(own) => {
            let structure = Structure::BuiltIn(built_in::kind(own.group, own.kind));
            track(object, live, &built_in::zero(own.group, own.kind), structure, &write);
        }
        Implementation::Custom(custom) => {
            let schema = custom.structure(&request.target.version);
            track(object, live, &json!({}), schema.map_or(Structure::Deduced, Structure::CustomRoot), &write);
        }
    }
}

/// The fields that an endpoint does not change.
fn ignored(request: &ResourceRequest) -> &'static [&'static str] {
    let apart = request.resource.has(&request.target.version, "status");
    match (request.endpoint(), request.resource.custom()) {
        (Endpoint::Main, _) if apart => &["status"],
        (Endpoint::Main, _) => &[],
        (Endpoint::Status, Some(_)) => &["metadata", "spec"],
        (Endpoint::Status, None) => &["spec"],
    }
}

/// Whether objects can be converted to a version. All versions of built-in resources stay known.
fn is_known(resource: &Resource, api_version: &str) -> bool {
    let Some(custom) = resource.custom() else { return true };
    custom.decodable().iter().any(|version| version.to_string() == api_version)
}

/// Whether all managedFields survive a write that changes nothing.
pub(super) fn is_lasting(request: &ResourceRequest, object: &Value) -> bool {
    let entries = field(object, "managedFields").and_then(Value::as_array);
    let mut versions = entries.into_iter().flatten().filter_map(|entry| entry["apiVersion"].as_str());
    versions.all(|version| version == request.view.api_version || is_known(&request.resource, version))
}
