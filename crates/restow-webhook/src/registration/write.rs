//! Changes a CRD, if it has not changed since it was read.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use restow_lease::request::{as_read, ask};
use serde_json::Value;

use super::error::RegistrationError;
use super::stanza::FIELD_MANAGER;

/// Sends a merge patch that has what was read as its precondition.
pub(super) async fn write(
    api: &Api<CustomResourceDefinition>,
    name: &str,
    crd: &CustomResourceDefinition,
    patch: Value,
) -> Result<CustomResourceDefinition, RegistrationError> {
    let failed = |error| RegistrationError::Crd(name.to_owned(), error);
    as_read(&crd.metadata).map_err(failed)?;
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    ask(api.patch(name, &params, &Patch::Merge(patch))).await.map_err(failed)
}
