//! The storage keys of definitions.

use restow_core::resource::name::GroupResource;
use serde_json::Value;

use crate::verbs::api::Api;

/// The prefix of the keys of definitions.
pub(super) const PREFIX: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// The page size of lists.
pub(super) const PAGE: usize = 100;

pub(super) fn resource_name(definition: &Value) -> GroupResource {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    GroupResource::new(text(&spec["group"]), text(&spec["names"]["plural"]))
}

/// Whether a definition has the name of a built-in resource. The built-in resource is served, as in kube-apiserver.
pub(super) fn is_built_in(api: &Api, definition: &Value) -> bool {
    let name = resource_name(definition);
    api.registry.built_in(&name.group, &name.resource).is_some()
}

/// The name of the definition under a key.
pub(super) fn name(key: &str) -> &str {
    key.strip_prefix(PREFIX).unwrap_or(key)
}
