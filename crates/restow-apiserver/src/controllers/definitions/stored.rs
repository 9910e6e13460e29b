//! Where definitions are stored, and what their names are.

use restow_core::resource::name::GroupResource;
use serde_json::Value;

use crate::verbs::api::Api;

/// Where definitions are stored.
pub(super) const PREFIX: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// How many are read at once.
pub(super) const PAGE: usize = 100;

pub(super) fn resource_name(definition: &Value) -> GroupResource {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    GroupResource::new(text(&spec["group"]), text(&spec["names"]["plural"]))
}

/// Whether a definition has the name of a built-in resource, which goes on to be served in its stead, as kube-apiserver
/// has it.
pub(super) fn is_built_in(api: &Api, definition: &Value) -> bool {
    let name = resource_name(definition);
    api.registry.built_in(&name.group, &name.resource).is_some()
}

/// The name of the definition under a key.
pub(super) fn name(key: &str) -> &str {
    key.strip_prefix(PREFIX).unwrap_or(key)
}
