//! Whether a namespace and a definition take new objects.

use restow_store::Unchanged;
use serde_json::Value;

use crate::http::status::{Cause, CauseKind, Details, Failure};
use crate::object::meta::{self, is_deleting, text};
use crate::object::stored::Extent;
use crate::registry::custom_resource::Custom;
use crate::verbs::api::{Api, NOT_REGISTERED};
use crate::verbs::call::Call;

/// Namespaces that are always there, even before they were stored, and cannot be deleted.
pub(super) const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// What must not change until a new object is stored: its namespace, and the definition that this server goes by.
/// Refuses the create if the namespace is going.
pub(super) async fn conditions(api: &Api, call: &Call, name: &str) -> Result<Vec<Unchanged>, Failure> {
    let namespace = in_namespace(api, call, name).await?;
    let known = call.resource.custom().and_then(|custom| {
        let mod_revision = text(&custom.object, "resourceVersion").parse().ok()?;
        Some(Unchanged { key: definition_key(custom), mod_revision })
    });
    Ok(namespace.into_iter().chain(known).collect())
}

/// The same as `conditions`, after one of them has changed: the definition is read from the store.
pub(super) async fn conditions_again(api: &Api, call: &Call, name: &str) -> Result<Vec<Unchanged>, Failure> {
    let namespace = in_namespace(api, call, name).await?;
    Ok(namespace.into_iter().chain(under_definition(api, call).await?).collect())
}

/// Refuses a create under a definition that is gone or being deleted. Another server may have deleted all objects of
/// the definition before this one saw the deletion, and would not find an object that is stored later.
async fn under_definition(api: &Api, call: &Call) -> Result<Option<Unchanged>, Failure> {
    let definitions = api.registry.built_in("apiextensions.k8s.io", "customresourcedefinitions");
    let Some((custom, definitions)) = call.resource.custom().zip(definitions) else { return Ok(None) };
    let entry = api.entry(&definition_key(custom)).await?.ok_or_else(Failure::unknown_path)?;
    let unchanged = Unchanged { key: entry.key.clone(), mod_revision: entry.mod_revision };
    let object = api.decode(&definitions, entry, Extent::Metadata)?;
    if is_deleting(&object) {
        return Err(Failure::verb_not_supported(&call.resource.name, "create"));
    }
    if text(&object, "uid") != text(&custom.object, "uid") {
        return Err(Failure::service_unavailable(NOT_REGISTERED));
    }
    Ok(Some(unchanged))
}

fn definition_key(custom: &Custom) -> String {
    format!("/registry/apiextensions.k8s.io/customresourcedefinitions/{}", meta::name(&custom.object))
}

/// Refuses a create in a namespace that is not there or about to go; else tells what must not change until it is
/// stored, unless the namespace cannot go.
async fn in_namespace(api: &Api, call: &Call, name: &str) -> Result<Option<Unchanged>, Failure> {
    let namespace = call.target.namespace.as_str();
    if !call.resource.namespaced || IMMORTAL.contains(&namespace) {
        return Ok(None);
    }
    let Some(namespaces) = api.registry.built_in("", "namespaces") else { return Ok(None) };
    let Some(entry) = api.entry(&namespaces.key("", namespace)).await? else {
        return Err(Failure::not_found(&namespaces.name, namespace));
    };
    let unchanged = Unchanged { key: entry.key.clone(), mod_revision: entry.mod_revision };
    let object = api.decode(&namespaces, entry, Extent::Whole)?;
    let terminating = object["status"]["phase"] == "Terminating"
        || object["metadata"].get("deletionTimestamp").is_some_and(Value::is_string);
    if !terminating {
        return Ok(Some(unchanged));
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let failure = Failure::forbidden_object(&call.resource.name, name, &why);
    let details = failure.details().cloned().unwrap_or_default();
    let cause = Cause::bare(
        CauseKind::NamespaceTerminating,
        format!("namespace {namespace} is being terminated"),
        "metadata.namespace",
    );
    Err(failure.with_details(Details { causes: vec![cause], ..details }))
}
