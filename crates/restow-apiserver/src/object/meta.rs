//! The rules of metadata on create, update and delete.
//!
//! The order in which kube-apiserver applies them, and in which a server is to call them:
//! create: [`shape::coerce`], [`create::prepare`], managed fields, [`validate::create`] (with the schema's causes);
//! update: [`shape::coerce`], [`update::check_names`], [`update::check_uid`] (not for a patch), managed fields,
//! [`update::prepare`], [`validate::update`] (with the schema's causes), [`update::restore_times`],
//! [`update::is_finished`];
//! delete: [`delete::decide`].

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod name;
pub(crate) mod shape;
pub(crate) mod update;
pub(crate) mod validate;

use jiff::Timestamp;
use restow_core::resource::name::GroupResource;
use serde_json::{Map, Value, json};

use crate::http::status::GroupKind;
pub(crate) use name::NameRule;

/// The metadata rules of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The resource, as in URLs.
    pub resource: GroupResource,
    /// The kind of its objects.
    pub kind: GroupKind,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// The rule for names of objects.
    pub name: NameRule,
    /// Which changes increase the generation.
    pub generation: Generation,
    /// How the status is separated from the rest.
    pub status: StatusRule,
    /// Whether an update without a resourceVersion overwrites whatever is there.
    pub unconditional_update: bool,
    /// Whether an update of an absent object creates it.
    pub create_on_update: bool,
    /// Whether the garbage collector knows the resource, and its finalizers can be set.
    pub collected: bool,
    /// Whether a delete waits for a grace period, as it does for pods.
    pub graceful: bool,
}

/// Which changes increase the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// The resource has no generations.
    None,
    /// Any change outside of metadata, and outside of the status if that is a subresource.
    Content,
    /// A change of the spec.
    Spec,
    /// A change of the spec or of the annotations.
    SpecOrAnnotations,
}

/// How the status is separated from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusRule {
    /// There is no status subresource.
    None,
    /// The status endpoint changes the status and nothing else, as for custom resources.
    StatusOnly,
    /// The status endpoint keeps the spec and these fields of metadata.
    KeepSpecAnd(&'static [&'static str]),
}

/// The metadata that most built-in resources keep in an update of the status.
pub(crate) const KEPT_BY_STATUS: &[&str] =
    &["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"];

/// Which endpoint of an object is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// The object itself.
    Main,
    Status,
}

impl Rules {
    /// The rules of a custom resource.
    pub(crate) fn custom(resource: GroupResource, kind: GroupKind, namespaced: bool, status: bool) -> Self {
        Self {
            resource,
            kind,
            namespaced,
            name: NameRule::Subdomain,
            generation: Generation::Content,
            status: if status { StatusRule::StatusOnly } else { StatusRule::None },
            unconditional_update: false,
            create_on_update: false,
            collected: true,
            graceful: false,
        }
    }

    /// The rules most built-in resources without a status have in common.
    pub(crate) fn plain(resource: GroupResource, kind: GroupKind, namespaced: bool) -> Self {
        Self {
            resource,
            kind,
            namespaced,
            name: NameRule::Subdomain,
            generation: Generation::None,
            status: StatusRule::None,
            unconditional_update: true,
            create_on_update: false,
            collected: true,
            graceful: false,
        }
    }
}

/// A field of an object's metadata.
pub(crate) fn field<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(key).filter(|value| !value.is_null())
}

/// A text of an object's metadata, empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    field(object, key).and_then(Value::as_str).unwrap_or_default()
}

/// The name of an object.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "name")
}

/// The generation of an object, 0 if it has none.
pub(crate) fn generation(object: &Value) -> i64 {
    field(object, "generation").and_then(Value::as_i64).unwrap_or_default()
}

/// The finalizers of an object.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = field(object, "finalizers").and_then(Value::as_array);
    list.map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// Whether an object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    field(object, "deletionTimestamp").is_some()
}

/// The metadata of an object to change; made if it is missing. None for what is not an object.
pub(crate) fn fields_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let metadata = object.as_object_mut()?.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut()
}

/// Sets a field of an object's metadata, or removes it.
pub(crate) fn set(object: &mut Value, key: &str, value: Option<Value>) {
    let Some(metadata) = fields_mut(object) else { return };
    match value {
        Some(value) => metadata.insert(key.to_owned(), value),
        None => metadata.remove(key),
    };
}

/// A time in metadata: whole seconds in UTC.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests;
