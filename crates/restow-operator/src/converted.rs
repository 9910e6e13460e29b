//! What the leader knows about the operator's webhook: its converters, certificates, replicas and registrar.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::Converter;
use restow_lease::election;
use restow_webhook::certificates::{CertificateKeeper, CertificateSettings, ServingCertificate, SharedTrust};
use restow_webhook::registration::{Endpoint, Registrar, RegistrationSettings};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::admission::Admission;
use crate::coverage::{Coverage, unknown_versions};
use crate::gates::Gates;
use crate::replicas::Replicas;
use crate::webhook::{Replica, Webhook, WebhookError};

/// How often the first certificate is waited for.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The operator's webhook, as its leader sees it.
pub(crate) struct Converted {
    pub(crate) endpoint: Endpoint,
    pub(crate) certificates: CertificateSettings,
    pub(crate) gates: Gates,
    pub(crate) registrar: Registrar<Gates>,
    serving: Arc<ServingCertificate>,
    trust: Arc<SharedTrust>,
}

impl Converted {
    /// Checks that converters fit the definitions, and prepares what each replica and the leader need.
    pub(crate) fn new(
        client: &kube::Client,
        definitions: &[CustomResourceDefinition],
        webhook: Webhook,
    ) -> Result<(Self, Replica), WebhookError> {
        webhook.load()?;
        let converters = pairs(definitions, &webhook.converters)?;
        let certificates = webhook.certificates();
        let trust = Arc::<SharedTrust>::default();
        let keeper = CertificateKeeper::new(client.clone(), certificates.clone(), Arc::clone(&trust));
        let digest = digest(definitions, &converters);
        let replicas = Replicas::new(client.clone(), &webhook.namespace, &webhook.name, digest);
        let replicas = Arc::new(replicas);
        let admission = Arc::new(Admission {
            client: client.clone(),
            endpoint: webhook.endpoint.clone(),
            certificates: certificates.clone(),
            configurations: webhook.configurations.clone(),
            open: AtomicBool::new(false),
            missing: AtomicBool::new(false),
        });
        let crds: Vec<String> = converters.iter().map(|(name, _)| name.clone()).collect();
        let gates = Gates {
            crds: crds.clone(),
            live: Arc::clone(&webhook.live),
            replicas: Arc::clone(&replicas),
            admission,
        };
        let settings = RegistrationSettings {
            endpoint: webhook.endpoint.clone(),
            certificates: certificates.clone(),
            crds: Some(crds),
            check_every: webhook.check_every,
            instance: election::host_name(),
        };
        let registrar = Registrar::new(client.clone(), settings, gates.clone(), Arc::clone(&trust));
        let serving = keeper.serving();
        let coverage = Arc::new(Coverage::new(client.clone(), converters, webhook.check_every));
        let replica = Replica { server: webhook.server, keeper, replicas, coverage };
        let converted = Self { endpoint: webhook.endpoint, certificates, gates, registrar, serving, trust };
        Ok((converted, replica))
    }

    /// Whether the webhook converts the objects of a definition.
    pub(crate) fn converts(&self, definition: &CustomResourceDefinition) -> bool {
        definition.metadata.name.as_ref().is_some_and(|name| self.gates.crds.contains(name))
    }

    /// Returns when this replica serves a certificate.
    pub(crate) async fn has_certificate(&self) {
        while self.serving.check(restow_clock::now()).is_err() {
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// From now on admission handlers may be called.
    pub(crate) fn open(&self) {
        if !self.gates.admission.open.swap(true, Ordering::Relaxed) {
            // Wakes the registrar, which keeps them.
            self.trust.certificates_changed();
        }
    }
}

/// The name of each CRD that has a converter, and its converter.
fn pairs(
    definitions: &[CustomResourceDefinition],
    converters: &[Converter],
) -> Result<Vec<(String, Converter)>, WebhookError> {
    let pair = |converter: &Converter| {
        let kind = format!("{}.{}", converter.kind(), converter.group());
        let definition = definitions.iter().find(|definition| {
            definition.spec.group == converter.group() && definition.spec.names.kind == converter.kind()
        });
        let definition = definition.ok_or_else(|| WebhookError::NoDefinition(kind.clone()))?;
        let versions = unknown_versions(definition, converter);
        if !versions.is_empty() {
            return Err(WebhookError::UnknownVersions { kind, versions });
        }
        Ok((definition.metadata.name.clone().unwrap_or_default(), converter.clone()))
    };
    converters.iter().map(pair).collect()
}

/// A fingerprint of what a release converts: versions and their schemas, whichever is stored.
fn digest(definitions: &[CustomResourceDefinition], converters: &[(String, Converter)]) -> String {
    let is_converted = |definition: &&CustomResourceDefinition| {
        converters.iter().any(|(name, _)| Some(name) == definition.metadata.name.as_ref())
    };
    let parts = definitions.iter().filter(is_converted).map(|definition| {
        let versions = definition.spec.versions.iter().map(|version| (&version.name, &version.schema));
        json!([definition.metadata.name, versions.collect::<Vec<_>>()])
    });
    let text = json!(parts.collect::<Vec<_>>()).to_string();
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use restow_convert::{Convertible, Error};
    use serde_json::Value;

    use super::*;

    struct Same;

    impl Convertible for Same {
        fn convert(&self, object: Value, _: &str) -> Result<Value, Error> {
            Ok(object)
        }
    }

    fn crd(versions: &[&str], storage: &str) -> CustomResourceDefinition {
        let version = |name: &&str| json!({"name": name, "served": true, "storage": *name == storage});
        serde_json::from_value(json!({
            "metadata": {"name": "pages.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Page", "plural": "pages"},
                "versions": versions.iter().map(version).collect::<Vec<_>>(),
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_converter_must_fit_its_definition() {
        let converter = |kind: &str| Converter::new("example.com", kind, ["v1", "v2"], Same);
        let definitions = [crd(&["v1", "v2", "v3"], "v1")];
        assert_eq!(
            pairs(&definitions, &[converter("Page")]).unwrap_err().to_string(),
            "the converter for Page.example.com does not know v3, which the definition has"
        );
        assert_eq!(
            pairs(&definitions, &[converter("Site")]).unwrap_err().to_string(),
            "there is a converter for Site.example.com, but no definition; hand over its CRD as well"
        );
        let fits = pairs(&[crd(&["v1"], "v1")], &[converter("Page")]).unwrap();
        assert_eq!(fits[0].0, "pages.example.com");
    }

    #[test]
    fn a_release_is_known_by_its_versions_and_not_by_which_is_stored() {
        let converters =
            [("pages.example.com".to_owned(), Converter::new("example.com", "Page", ["v1"], Same))];
        let of = |versions: &[&str], storage| digest(&[crd(versions, storage)], &converters);
        assert_eq!(of(&["v1", "v2"], "v1"), of(&["v1", "v2"], "v2"));
        assert_ne!(of(&["v1", "v2"], "v1"), of(&["v1"], "v1"));
    }
}
