//! Creates and updates the CRDs of an operator, from YAML files or Rust types. Their caBundle is known only when the webhook
//! runs, so the webhook does it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use restow_lease::request::{ObjectError, ask, find};
use serde_json::{Value, json};

use super::error::RegistrationError;
use super::ownership::handed_over;
use super::registrar::RegistrationSettings;
use super::stanza;
use crate::certificates::read_bundle;

/// The field manager of what an operator's definitions say. The stanza has another one, [`stanza::FIELD_MANAGER`].
const FIELD_MANAGER: &str = stanza::CREATOR;
/// How often a write is tried again because another client wrote first.
const ATTEMPTS: u32 = 10;

/// What came of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The CRD was created, with the webhook in it.
    Created,
    /// The CRD existed, and was changed.
    Changed,
    /// The CRD existed as it shall be.
    Unchanged,
}

/// Creates CRDs that do not exist, with the webhook in their stanza, and updates those that exist by server-side apply.
///
/// An update leaves the stanza as it is: a [`super::Registrar`] registers the webhook when every gate is open. What somebody
/// else manages is a conflict, and stays as it is.
///
/// # Errors
/// When a CRD cannot be written. Those before it were.
pub async fn apply_definitions(
    client: &kube::Client,
    settings: &RegistrationSettings,
    definitions: impl IntoIterator<Item = CustomResourceDefinition>,
) -> Result<Vec<(String, Applied)>, RegistrationError> {
    let mut done = Vec::new();
    for definition in definitions {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let applied = apply(client, settings, &name, &definition).await?;
        tracing::info!(crd = name, ?applied, "applied the definition");
        done.push((name, applied));
    }
    Ok(done)
}

async fn apply(
    client: &kube::Client,
    settings: &RegistrationSettings,
    name: &str,
    definition: &CustomResourceDefinition,
) -> Result<Applied, RegistrationError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let failed = |error| RegistrationError::Crd(name.to_owned(), error);
    for _ in 0..ATTEMPTS {
        let applied = match find(api.get(name)).await.map_err(failed)? {
            None => create(client, settings, definition).await?,
            Some(former) => update(&api, name, &former, definition).await,
        };
        match applied {
            Err(ObjectError::Conflict) => {}
            applied => return applied.map_err(failed),
        }
    }
    Err(failed(ObjectError::Conflict))
}

async fn create(
    client: &kube::Client,
    settings: &RegistrationSettings,
    definition: &CustomResourceDefinition,
) -> Result<Result<Applied, ObjectError>, RegistrationError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut definition = definition.clone();
    // With one version there is nothing to convert.
    if definition.spec.versions.len() > 1 {
        let bundle = read_bundle(client, &settings.certificates).await?;
        definition = stanza::registered(&definition, &settings.endpoint, &bundle.pem);
    }
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    Ok(ask(api.create(&params, &definition)).await.map(|_| Applied::Created))
}

async fn update(
    api: &Api<CustomResourceDefinition>,
    name: &str,
    former: &CustomResourceDefinition,
    definition: &CustomResourceDefinition,
) -> Result<Applied, ObjectError> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let mut former = former.clone();
    if let Some(owners) = handed_over(former.metadata.managed_fields.as_deref().unwrap_or_default()) {
        let ObjectMeta { uid, resource_version, .. } = &former.metadata;
        let owners = json!({"uid": uid, "resourceVersion": resource_version, "managedFields": owners});
        former = ask(api.patch(name, &params, &Patch::Merge(json!({"metadata": owners})))).await?;
    }
    let after = ask(api.patch(name, &params, &Patch::Apply(configuration(&former, definition)))).await?;
    let same = after.metadata.resource_version == former.metadata.resource_version;
    Ok(if same { Applied::Unchanged } else { Applied::Changed })
}

/// What is applied: the definition without its stanza and status, if the CRD has not changed since it was read.
fn configuration(former: &CustomResourceDefinition, definition: &CustomResourceDefinition) -> Value {
    let mut applied = json!(definition);
    if let Some(spec) = applied["spec"].as_object_mut() {
        spec.remove("conversion");
    }
    if let Some(object) = applied.as_object_mut() {
        object.remove("status");
    }
    applied["metadata"]["uid"] = json!(former.metadata.uid);
    applied["metadata"]["resourceVersion"] = json!(former.metadata.resource_version);
    applied
}
