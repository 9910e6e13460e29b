//! Whether a namespace takes new objects.

use restow_store::Unchanged;
use serde_json::Value;

use super::Call;
use crate::http::status::{Cause, CauseKind, Details, Failure};
use crate::object::stored::Extent;
use crate::verbs::api::Api;

/// Namespaces that are always there, even before they were stored, and cannot be deleted.
pub(super) const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Refuses a create in a namespace that is not there or about to go; else tells what must not change until it is
/// stored, unless the namespace cannot go.
pub(super) async fn in_namespace(api: &Api, call: &Call, name: &str) -> Result<Option<Unchanged>, Failure> {
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
