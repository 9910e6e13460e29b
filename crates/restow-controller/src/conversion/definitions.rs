//! Finds the CustomResourceDefinition of a kind, and changes it.

use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_api::ConversionSpec;
use restow_core::controller::conversion::Definition;
use restow_migrate::client::Server;
use serde_json::Value;

use super::error::RoundError;

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A CustomResourceDefinition, as it was read.
pub(super) struct Found {
    /// With every field, for patches.
    pub(super) raw: Value,
    /// With its schemas.
    pub(super) crd: CustomResourceDefinition,
    /// What decisions need.
    pub(super) definition: Definition,
}

impl Found {
    fn read(raw: Value) -> Result<Self, RoundError> {
        let crd: CustomResourceDefinition = serde_json::from_value(raw.clone())
            .map_err(|error| RoundError::Answer(format!("not a CustomResourceDefinition: {error}")))?;
        let definition = Definition::of(&crd);
        if definition.uid.is_empty() || definition.versions.is_empty() {
            return Err(RoundError::Answer("a CustomResourceDefinition without uid or versions".to_owned()));
        }
        Ok(Self { raw, crd, definition })
    }

    fn defines(&self, spec: &ConversionSpec) -> bool {
        self.crd.spec.group == spec.group && self.crd.spec.names.kind == spec.kind
    }
}

/// The definition of a kind; none if there is none. `name` is where it was last.
pub(super) async fn find(
    server: &Server,
    spec: &ConversionSpec,
    name: Option<&str>,
) -> Result<Option<Found>, RoundError> {
    if let Some(name) = name
        && let Some(found) = get(server, name).await?
        && found.defines(spec)
    {
        return Ok(Some(found));
    }
    // Only a list shows that something does not exist: a 404 may come from a proxy.
    let mut next = String::new();
    loop {
        let mut page: Value = server.get(&format!("{PATH}?limit=20&continue={next}")).await?;
        if page["kind"] != "CustomResourceDefinitionList" || !page["items"].is_array() {
            return Err(RoundError::Answer("not a list of CustomResourceDefinitions".to_owned()));
        }
        for item in page["items"].as_array_mut().into_iter().flatten() {
            let (names, group) = (&item["spec"]["names"], &item["spec"]["group"]);
            if *group == spec.group.as_str() && names["kind"] == spec.kind.as_str() {
                return Found::read(item.take()).map(Some);
            }
        }
        next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if next.is_empty() {
            return Ok(None);
        }
    }
}

async fn get(server: &Server, name: &str) -> Result<Option<Found>, RoundError> {
    match server.get::<Value>(&format!("{PATH}/{name}")).await {
        Ok(raw) => Found::read(raw).map(Some),
        Err(error) if error.code() == Some(404) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sends a merge patch with preconditions; returns the definition after it, or none if somebody has changed it since it was
/// read.
pub(super) async fn patch(server: &Server, name: &str, patch: &Value) -> Result<Option<Found>, RoundError> {
    let body = patch.to_string().into_bytes();
    let path = format!("{PATH}/{name}");
    match server.write::<Value>(Method::PATCH, &path, "application/merge-patch+json", body).await {
        Ok(raw) => Found::read(raw).map(Some),
        Err(error) if error.code() == Some(409) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
