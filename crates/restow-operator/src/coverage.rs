//! Whether this release of an operator can convert all versions that its CRDs have.
//!
//! After a rollback it may not: API servers then ask for versions that only the newer release knows. Such a replica is not
//! ready, so that a rollout stops at the first one, and replicas of the newer release go on answering.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use restow_convert::Converter;
use restow_lease::Stop;
use restow_lease::request::{ObjectError, find};

/// Knows whether all versions of some CRDs can be converted.
pub(crate) struct Coverage {
    crds: Api<CustomResourceDefinition>,
    /// The CRDs by name, and the converter of each.
    converters: Vec<(String, Converter)>,
    check_every: Duration,
    state: Mutex<Result<(), String>>,
}

impl Coverage {
    pub(crate) fn new(
        client: kube::Client,
        converters: Vec<(String, Converter)>,
        check_every: Duration,
    ) -> Self {
        let state = Mutex::new(Err("the CRDs were not read yet".to_owned()));
        Self { crds: Api::all(client), converters, check_every, state }
    }

    /// Reads the CRDs from time to time until it is stopped.
    pub(crate) async fn follow(&self, stop: &Stop) {
        while let Some(read) = stop.unless(self.read()).await {
            match read {
                Ok(state) => {
                    let mut known = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                    if let (Err(why), false) = (&state, *known == state) {
                        tracing::warn!("not ready: {why}");
                    }
                    *known = state;
                }
                Err(error) => tracing::warn!("could not read the operator's CRDs: {error}"),
            }
            stop.unless(tokio::time::sleep(self.check_every)).await;
        }
    }

    async fn read(&self) -> Result<Result<(), String>, ObjectError> {
        for (name, converter) in &self.converters {
            let Some(crd) = find(self.crds.get(name)).await? else { continue };
            let unknown = unknown_versions(&crd, converter);
            if !unknown.is_empty() {
                return Ok(Err(format!(
                    "the CRD {name} has {}, which this release cannot convert; run the release that added it",
                    unknown.join(", ")
                )));
            }
        }
        Ok(Ok(()))
    }

    /// Whether all versions could be converted when the CRDs were last read.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The versions of a CRD that a converter does not know.
pub(crate) fn unknown_versions(crd: &CustomResourceDefinition, converter: &Converter) -> Vec<String> {
    let names = crd.spec.versions.iter().map(|version| version.name.clone());
    names.filter(|name| !converter.versions().contains(name)).collect()
}
