//! Whether new objects may be created in a namespace and under a definition.

use restow_store::Unchanged;
use serde_json::Value;

use crate::http::status::{Cause, CauseKind, Details, StatusError};
use crate::object::meta::{self, is_deleting, text};
use crate::object::stored::DecodeScope;
use crate::registry::custom_resource::ServedDefinition;
use crate::verbs::api::{Api, NOT_REGISTERED};
use crate::verbs::request::ResourceRequest;

/// Namespaces that always exist, even before they are stored, and cannot be deleted.
pub(super) const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// What must not change until a new object is stored: its namespace, and its definition as this server knows it. Refuses
/// the create if the namespace is terminating.
pub(super) async fn conditions(
    api: &Api,
    request: &ResourceRequest,
    name: &str,
) -> Result<Vec<Unchanged>, StatusError> {
    let namespace = in_namespace(api, request, name).await?;
    let known = request.resource.custom().and_then(|custom| {
        let mod_revision = text(&custom.object, "resourceVersion").parse().ok()?;
        Some(Unchanged { key: definition_key(custom), mod_revision })
    });
    Ok(namespace.into_iter().chain(known).collect())
}

/// The same as `conditions`, after one of them has changed: the definition is read from the store.
pub(super) async fn conditions_again(
    api: &Api,
    request: &ResourceRequest,
    name: &str,
) -> Result<Vec<Unchanged>, StatusError> {
    let namespace = in_namespace(api, request, name).await?;
    Ok(namespace.into_iter().chain(under_definition(api, request).await?).collect())
}

/// Refuses a create under a definition that is deleted or being deleted. Another server may have deleted all objects of
/// the definition before this one saw the deletion, and would miss an object that is stored later.
async fn under_definition(api: &Api, request: &ResourceRequest) -> Result<Option<Unchanged>, StatusError> {
    let definitions = api.registry.built_in("apiextensions.k8s.io", "customresourcedefinitions");
    let Some((custom, definitions)) = request.resource.custom().zip(definitions) else { return Ok(None) };
    let entry = api.entry(&definition_key(custom)).await?.ok_or_else(StatusError::unknown_path)?;
    let unchanged = Unchanged { key: entry.key.clone(), mod_revision: entry.mod_revision };
    let object = api.decode(&definitions, entry, DecodeScope::Metadata)?;
    if is_deleting(&object) {
        return Err(StatusError::verb_not_supported(&request.resource.name, "create"));
    }
    if text(&object, "uid") != text(&custom.object, "uid") {
        return Err(StatusError::service_unavailable(NOT_REGISTERED));
    }
    Ok(Some(unchanged))
}

fn definition_key(custom: &ServedDefinition) -> String {
    format!("/registry/apiextensions.k8s.io/customresourcedefinitions/{}", meta::name(&custom.object))
}

/// Refuses a create in a namespace that does not exist or is terminating. Returns what must not change until the object
/// is stored, unless the namespace cannot be deleted.
async fn in_namespace(
    api: &Api,
    request: &ResourceRequest,
    name: &str,
) -> Result<Option<Unchanged>, StatusError> {
    let namespace = request.target.namespace.as_str();
    if !request.resource.namespaced || IMMORTAL.contains(&namespace) {
        return Ok(None);
    }
    let Some(namespaces) = api.registry.built_in("", "namespaces") else { return Ok(None) };
    let Some(entry) = api.entry(&namespaces.key("", namespace)).await? else {
        return Err(StatusError::not_found(&namespaces.name, namespace));
    };
    let unchanged = Unchanged { key: entry.key.clone(), mod_revision: entry.mod_revision };
    let object = api.decode(&namespaces, entry, DecodeScope::Whole)?;
    let terminating = object["status"]["phase"] == "Terminating"
        || object["metadata"].get("deletionTimestamp").is_some_and(Value::is_string);
    if !terminating {
        return Ok(Some(unchanged));
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let failure = StatusError::forbidden_object(&request.resource.name, name, &why);
    let details = failure.details().cloned().unwrap_or_default();
    let cause = Cause::bare(
        CauseKind::NamespaceTerminating,
        format!("namespace {namespace} is being terminated"),
        "metadata.namespace",
    );
    Err(failure.with_details(Details { causes: vec![cause], ..details }))
}
