//! The admission configurations of an operator: created with the webhook's address, and kept as its certificates change.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Uri;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use restow_lease::request::{ObjectError, as_read, ask, find};
use restow_webhook::certificates::{CertificateSettings, CrdTrust, fingerprints, read_bundle};
use restow_webhook::registration::Endpoint;
use serde_json::{Value, json};

use crate::error::causes;

const GROUP: &str = "admissionregistration.k8s.io";
const FIELD_MANAGER: &str = "restow-operator";

/// One configuration, and the path of its handler.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    kind: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) name: String,
    path: String,
    object: Value,
}

impl Configuration {
    pub(crate) fn validating(path: &str, configuration: &ValidatingWebhookConfiguration) -> Self {
        let object = json!(configuration);
        Self::new("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", path, object)
    }

    pub(crate) fn mutating(path: &str, configuration: &MutatingWebhookConfiguration) -> Self {
        let object = json!(configuration);
        Self::new("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", path, object)
    }

    fn new(kind: &'static str, resource: &'static str, path: &str, mut object: Value) -> Self {
        object["apiVersion"] = json!(format!("{GROUP}/v1"));
        object["kind"] = json!(kind);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Self { kind, resource, name, path: format!("/{}", path.trim_matches('/')), object }
    }

    fn api(&self, client: &kube::Client) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(GROUP, "v1", self.kind);
        Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, self.resource))
    }

    /// The configuration, with the address of the webhook and what to trust.
    fn filled(&self, endpoint: &Endpoint, bundle: &str) -> Value {
        let mut object = self.object.clone();
        for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
            webhook["clientConfig"] = client_config(endpoint, &self.path, bundle);
        }
        object
    }
}

fn client_config(endpoint: &Endpoint, path: &str, bundle: &str) -> Value {
    let bundle = ByteString(bundle.as_bytes().to_vec());
    match endpoint {
        Endpoint::Service { namespace, name, port, .. } => json!({
            "service": {"namespace": namespace, "name": name, "port": port, "path": path}, "caBundle": bundle,
        }),
        Endpoint::Url(uri) => {
            let mut parts = uri.clone().into_parts();
            parts.path_and_query = path.parse().ok();
            let uri = Uri::from_parts(parts).unwrap_or_else(|_| uri.clone());
            json!({"url": uri.to_string(), "caBundle": bundle})
        }
    }
}

/// What to change in a configuration that exists: its webhooks with everything that is wanted, or nothing. What others have set
/// besides stays.
fn change(found: &Value, wanted: &Value) -> Option<Value> {
    let none = Vec::new();
    let list = |object: &'_ Value| object["webhooks"].as_array().cloned().unwrap_or_else(|| none.clone());
    let (former, wanted_list) = (list(found), list(wanted));
    let merged: Vec<Value> = wanted_list
        .iter()
        .map(|webhook| {
            let same = former.iter().find(|one| one["name"] == webhook["name"]);
            let mut merged = same.cloned().unwrap_or_else(|| json!({}));
            merge(&mut merged, webhook);
            merged
        })
        .collect();
    (merged != former).then(|| json!({"webhooks": merged}))
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) if into.len() == from.len() => {
            into.iter_mut().zip(from).for_each(|(into, from)| merge(into, from));
        }
        (into, from) => *into = from.clone(),
    }
}

/// What all webhooks of a configuration trust.
fn trust(resource: &str, name: &str, found: &Value) -> CrdTrust {
    let bundle = |webhook: &Value| {
        let bundle = serde_json::from_value::<ByteString>(webhook["clientConfig"]["caBundle"].clone());
        bundle.map(|bundle| fingerprints(&bundle.0)).unwrap_or_default()
    };
    let all = found["webhooks"].as_array().into_iter().flatten().map(bundle);
    let authorities: Option<BTreeSet<_>> =
        all.reduce(|one, other| one.intersection(&other).cloned().collect());
    CrdTrust { name: format!("{resource}/{name}"), authorities: authorities.unwrap_or_default() }
}

/// Keeps the admission configurations of an operator.
pub(crate) struct Admission {
    pub(crate) client: kube::Client,
    pub(crate) endpoint: Endpoint,
    pub(crate) certificates: CertificateSettings,
    pub(crate) configurations: Vec<Configuration>,
    /// Whether the handlers may be called: the CRDs are registered.
    pub(crate) open: AtomicBool,
    /// Whether it was logged that the API server has no admission webhooks.
    pub(crate) missing: AtomicBool,
}

impl Admission {
    /// Brings all configurations to where they shall be, and returns what each trusted when it was read.
    pub(crate) async fn keep(&self) -> Result<Vec<CrdTrust>, String> {
        let mut seen = Vec::new();
        for configuration in &self.configurations {
            let kept = self.keep_one(configuration).await;
            let explain =
                |error: String| format!("{} {}: {error}", configuration.resource, configuration.name);
            seen.extend(kept.map_err(explain)?);
        }
        Ok(seen)
    }

    async fn keep_one(&self, configuration: &Configuration) -> Result<Option<CrdTrust>, String> {
        let api = configuration.api(&self.client);
        let name = &configuration.name;
        let found = find(api.get(name)).await.map_err(|error| causes(&error))?;
        let as_found = found.as_ref().map(|found| json!(found));
        let trusted = as_found.as_ref().map(|found| trust(configuration.resource, name, found));
        if !self.open.load(Ordering::Relaxed) {
            return Ok(trusted);
        }
        // Read after the configuration: no authority can be missing in it that began to sign before.
        let bundle = read_bundle(&self.client, &self.certificates).await.map_err(|error| causes(&error))?;
        let wanted = configuration.filled(&self.endpoint, &bundle.pem);
        let written = match (&found, &as_found) {
            (Some(found), Some(value)) => match change(value, &wanted) {
                Some(patch) => replace(&api, found, patch).await,
                None => return Ok(trusted),
            },
            _ => create(&api, wanted).await,
        };
        match written {
            Ok(()) => tracing::info!(configuration = name, "registered the admission handler"),
            // It is read again in the next round.
            Err(ObjectError::Conflict) => {}
            Err(ObjectError::NotFound) if found.is_none() => {
                if !self.missing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        configuration = name,
                        "the API server has no admission webhooks; the handler is served, and not called"
                    );
                }
            }
            Err(error) => return Err(causes(&error)),
        }
        Ok(trusted)
    }
}

async fn create(api: &Api<DynamicObject>, wanted: Value) -> Result<(), ObjectError> {
    let object: DynamicObject =
        serde_json::from_value(wanted).map_err(|error| ObjectError::Other(kube::Error::SerdeError(error)))?;
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    ask(api.create(&params, &object)).await.map(drop)
}

async fn replace(
    api: &Api<DynamicObject>,
    found: &DynamicObject,
    mut patch: Value,
) -> Result<(), ObjectError> {
    let (uid, resource_version) = as_read(&found.metadata)?;
    patch["metadata"] = json!({"uid": uid, "resourceVersion": resource_version});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let name = found.metadata.name.as_deref().unwrap_or_default();
    ask(api.patch(name, &params, &Patch::Merge(patch))).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(bundle: &str) -> Value {
        let rules = json!([{"operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["pages"]}]);
        let object = json!({
            "metadata": {"name": "pages"},
            "webhooks": [{"name": "pages.example.com", "rules": rules, "sideEffects": "None", "admissionReviewVersions": ["v1"]}],
        });
        let configuration = Configuration::validating("validate", &serde_json::from_value(object).unwrap());
        configuration.filled(&Endpoint::url("https://127.0.0.1:9443/convert").unwrap(), bundle)
    }

    #[test]
    fn the_webhooks_of_a_configuration_get_the_address_and_the_bundle() {
        let webhook = &wanted("PEM")["webhooks"][0];
        assert_eq!(
            webhook["clientConfig"],
            json!({"url": "https://127.0.0.1:9443/validate", "caBundle": "UEVN"})
        );
        let service =
            Endpoint::Service { namespace: "n".into(), name: "s".into(), port: 443, path: "/convert".into() };
        let expected = json!({"service": {"namespace": "n", "name": "s", "port": 443, "path": "/validate"}, "caBundle": "UEVN"});
        assert_eq!(client_config(&service, "/validate", "PEM"), expected);
    }

    #[test]
    fn only_what_differs_is_changed_and_what_others_have_set_stays() {
        let mut found = wanted("PEM");
        found["webhooks"][0]["timeoutSeconds"] = json!(3);
        found["webhooks"][0]["rules"][0]["scope"] = json!("*");
        assert_eq!(change(&found, &wanted("PEM")), None, "what API servers fill in is no difference");
        let change = change(&found, &wanted("NEW")).unwrap();
        let webhook = &change["webhooks"][0];
        assert_eq!(webhook["clientConfig"]["caBundle"], "TkVX");
        assert_eq!((&webhook["timeoutSeconds"], &webhook["rules"][0]["scope"]), (&json!(3), &json!("*")));
    }

    #[test]
    fn a_configuration_trusts_what_all_its_webhooks_trust() {
        let found = json!({"webhooks": [{"clientConfig": {"caBundle": "UEVN"}}, {"clientConfig": {}}]});
        assert!(trust("r", "n", &found).authorities.is_empty());
    }
}
