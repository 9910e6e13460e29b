//! Keeps the stanzas of CRDs as they shall be: registers the webhook where every gate is open, and updates caBundles.
//!
//! The order of reads matters. A CRD is read before the Secret whose authorities are written to it, and written only if it
//! has not changed since. Then no authority of a later Secret can be missing in the CRD while a replica serves a leaf of it:
//! it begins to sign only when this CRD was seen with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ListParams;
use restow_clock::Instant;
use restow_convert::causes;
use restow_lease::Stop;
use restow_lease::request::{ObjectError, ask, find};
use serde_json::Value;

use super::endpoint::Endpoint;
use super::error::RegistrationError;
use super::events;
use super::gates::{Closed, ConverterGates, CrdState, Gate};
use super::probe::{probe, review};
use super::stanza::{self, Change, Standing};
use super::survey::{Survey, SurveyError, survey};
use super::write::write;
use crate::certificates::{Bundle, CertificateError, CertificateSettings, SharedTrust, read_bundle};

/// Where a webhook is registered, and with which certificates.
#[derive(Clone, Debug)]
pub struct RegistrationSettings {
    /// Where API servers call it.
    pub endpoint: Endpoint,
    /// Its certificates.
    pub certificates: CertificateSettings,
    /// The CRDs to register it in; all that there are converters for if none are named.
    pub crds: Option<Vec<String>>,
    /// How often CRDs are checked; 10 seconds by default.
    pub check_every: Duration,
    /// The name of this replica in Events.
    pub instance: String,
}

/// Registers a webhook in CRDs. Run it in one replica at a time, to save work; it is safe in several.
pub struct Registrar<G> {
    client: kube::Client,
    settings: RegistrationSettings,
    gates: G,
    trust: Arc<SharedTrust>,
    states: Mutex<BTreeMap<String, CrdState>>,
    /// What was tried in vain, by CRD.
    in_vain: Mutex<BTreeMap<String, InVain>>,
}

/// Live objects that a converter did not pass.
struct InVain {
    /// The uid and generation of the CRD, and the revision of the converter.
    key: (Option<String>, Option<i64>, i64),
    closed: Closed,
    /// When they are tried again, because objects may have changed.
    again: Instant,
}

/// A trial in vain is followed by a pause of so many times its duration.
const PAUSE: u32 = 10;
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

type Crds = BTreeMap<String, CustomResourceDefinition>;

impl<G: ConverterGates> Registrar<G> {
    /// A registrar that tells `trust` what it sees.
    pub fn new(
        client: kube::Client,
        settings: RegistrationSettings,
        gates: G,
        trust: Arc<SharedTrust>,
    ) -> Self {
        Self { client, settings, gates, trust, states: Mutex::default(), in_vain: Mutex::default() }
    }

    /// Checks and changes CRDs until it is stopped.
    pub async fn run(&self, stop: &Stop) {
        while let Some(result) = stop.unless(self.round()).await {
            if let Err(error) = result {
                tracing::warn!("could not register the webhook in all CRDs: {}", causes(&error));
            }
            let pause = async {
                tokio::select! {
                    () = tokio::time::sleep(self.settings.check_every) => {}
                    () = self.trust.until_certificates_change() => {}
                }
            };
            stop.unless(pause).await;
        }
    }

    /// How each CRD stood when it was last checked.
    pub fn states(&self) -> BTreeMap<String, CrdState> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks every CRD once.
    ///
    /// # Errors
    /// When something could not be read or written. The rest is done all the same.
    pub async fn round(&self) -> Result<(), RegistrationError> {
        let known = self.bundle().await?;
        let crds = self.read_crds().await?;
        let endpoint = &self.settings.endpoint;
        let mut seen: Vec<_> = crds.values().filter_map(|crd| stanza::trust(crd, endpoint)).collect();
        seen.extend(self.gates.others().await.map_err(RegistrationError::Others)?);
        self.trust.observe(Instant::now(), &known.authorities, seen);
        // Read again, after the CRDs.
        let bundle = self.bundle().await?;
        let mut result = Ok(());
        let mut states = BTreeMap::new();
        for (name, crd) in crds {
            match self.settle(&name, crd, &bundle).await {
                Ok(Some(state)) => drop(states.insert(name, state)),
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
        }
        for (crd, state) in &states {
            self.gates.report(crd, state).await;
        }
        self.report(states).await;
        result
    }

    async fn bundle(&self) -> Result<Bundle, CertificateError> {
        read_bundle(&self.client, &self.settings.certificates).await
    }

    fn api(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    /// The CRDs that there are converters for, and those that call the webhook or are about to.
    async fn read_crds(&self) -> Result<Crds, RegistrationError> {
        let names = match &self.settings.crds {
            Some(named) => named.iter().cloned().collect(),
            None => self.find_crds().await?,
        };
        let mut crds = Crds::new();
        for name in names {
            let crd = find(self.api().get(&name)).await;
            if let Some(crd) = crd.map_err(|error| RegistrationError::Crd(name.clone(), error))? {
                crds.insert(name, crd);
            }
        }
        Ok(crds)
    }

    /// The CRDs that there are converters for, and those that are registered already.
    async fn find_crds(&self) -> Result<BTreeSet<String>, RegistrationError> {
        let name = self.settings.endpoint.to_string();
        let listed = ask(self.api().list_metadata(&ListParams::default())).await;
        let ours = listed.map_err(RegistrationError::List)?.items.into_iter().filter(|crd| {
            let annotations = crd.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(stanza::ANNOUNCED)) == Some(&name)
        });
        let mut names: BTreeSet<String> = ours.filter_map(|crd| crd.metadata.name).collect();
        names.extend(self.gates.crds());
        Ok(names)
    }

    /// Brings one CRD to where it shall be. None: another one wrote it at the same time, so it is checked again later.
    async fn settle(
        &self,
        name: &str,
        crd: CustomResourceDefinition,
        bundle: &Bundle,
    ) -> Result<Option<CrdState>, RegistrationError> {
        let endpoint = &self.settings.endpoint;
        let state = match stanza::standing(&crd, endpoint) {
            Standing::Ours => self.keep(name, &crd, bundle).await,
            Standing::Foreign(address) => {
                let message =
                    format!("a webhook at {address} converts it; remove that from spec.conversion first");
                Ok(CrdState::Waiting(Closed::new(Gate::Unclaimed, message)))
            }
            Standing::Unconverted if stanza::is_opted_out(&crd) => {
                let message = format!(
                    "the webhook was unregistered; to register it again, run: kubectl annotate crd {name} {}-",
                    stanza::ANNOUNCED
                );
                Ok(CrdState::Waiting(Closed::new(Gate::Wanted, message)))
            }
            Standing::Unconverted if crd.spec.versions.len() == 1 => {
                let message = "the CRD has one version, so there is nothing to convert".to_owned();
                Ok(CrdState::Waiting(Closed::new(Gate::Needed, message)))
            }
            Standing::Unconverted => self.register(name, crd, bundle).await,
        };
        match state {
            Ok(state) => Ok(Some(state)),
            Err(RegistrationError::Crd(_, ObjectError::Conflict)) => {
                self.trust.certificates_changed();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Updates the caBundle of a CRD that calls the webhook, and lets converters be used that were changed and pass the
    /// gates.
    async fn keep(
        &self,
        name: &str,
        crd: &CustomResourceDefinition,
        bundle: &Bundle,
    ) -> Result<CrdState, RegistrationError> {
        let trusted = stanza::trusted(crd, bundle, restow_clock::now());
        let state = match stanza::update(crd, &self.settings.endpoint, &trusted) {
            Change::None => CrdState::Registered,
            Change::LeftAlone(why) => CrdState::LeftAlone(why),
            Change::Patch(patch) => {
                self.patch(name, crd, patch).await?;
                CrdState::Registered
            }
        };
        let changed = self.gates.changed(crd).await;
        let revision = match changed {
            Ok(None) => return Ok(state),
            Ok(Some(revision)) => revision,
            Err(message) => return Ok(CrdState::Held(Closed::new(Gate::Served, message))),
        };
        match self.tried(name, crd, revision).await? {
            Err(closed) => Ok(CrdState::Held(closed)),
            Ok(_) => match self.gates.passed(crd).await {
                Ok(()) => {
                    tracing::info!(
                        crd = name,
                        revision,
                        "changed converters have passed every gate, and are used"
                    );
                    Ok(state)
                }
                Err(message) => Ok(CrdState::Held(Closed::new(Gate::Served, message))),
            },
        }
    }

    /// Tries all live objects, unless the same was tried in vain a short time ago: there can be many objects.
    async fn tried(
        &self,
        name: &str,
        crd: &CustomResourceDefinition,
        revision: i64,
    ) -> Result<Result<Survey, Closed>, RegistrationError> {
        let key = (crd.metadata.uid.clone(), crd.metadata.generation, revision);
        let lock = || self.in_vain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(InVain { closed, again, .. }) = lock().get(name).filter(|in_vain| in_vain.key == key)
            && Instant::now() < *again
        {
            return Ok(Err(closed.clone()));
        }
        let began = Instant::now();
        match survey(&self.client, crd, &self.gates).await {
            Ok(surveyed) => {
                lock().remove(name);
                Ok(Ok(surveyed))
            }
            Err(SurveyError::Closed(closed)) => {
                let pause = (began.elapsed() * PAUSE).min(LONGEST_PAUSE).max(self.settings.check_every);
                let in_vain = InVain { key, closed: closed.clone(), again: Instant::now() + pause };
                lock().insert(name.to_owned(), in_vain);
                Ok(Err(closed))
            }
            Err(error) => Err(RegistrationError::Survey(name.to_owned(), error)),
        }
    }

    /// Registers the webhook in a CRD without a conversion, if every gate is open.
    async fn register(
        &self,
        name: &str,
        crd: CustomResourceDefinition,
        bundle: &Bundle,
    ) -> Result<CrdState, RegistrationError> {
        let endpoint = &self.settings.endpoint;
        let announced = stanza::is_announced(&crd, endpoint);
        if let Err(closed) = self.check(name, &crd, bundle).await? {
            if let Some(patch) = stanza::withdraw(&crd, endpoint) {
                // Who was about to register it fails, because the CRD has changed. Rotations need not wait for it.
                self.patch(name, &crd, patch).await?;
            }
            return Ok(CrdState::Waiting(closed));
        }
        if let Err(message) = self.gates.passed(&crd).await {
            return Ok(CrdState::Waiting(Closed::new(Gate::Served, message)));
        }
        let crd = match announced {
            true => crd,
            false => self.patch(name, &crd, stanza::announce(&crd, endpoint)).await?,
        };
        let bundle = self.bundle().await?;
        self.patch(name, &crd, stanza::register(&crd, endpoint, &bundle.pem)).await?;
        tracing::info!(crd = name, webhook = %endpoint, "registered the conversion webhook");
        Ok(CrdState::Registered)
    }

    async fn check(
        &self,
        name: &str,
        crd: &CustomResourceDefinition,
        bundle: &Bundle,
    ) -> Result<Result<(), Closed>, RegistrationError> {
        if let Err(message) = self.gates.is_served(crd).await {
            return Ok(Err(Closed::new(Gate::Served, message)));
        }
        // First without an object: live objects are tried only on a webhook that answers.
        if let Err(closed) = self.answers(crd, bundle, None).await {
            return Ok(Err(closed));
        }
        let surveyed = match self.tried(name, crd, self.gates.revision(crd)).await? {
            Ok(surveyed) => surveyed,
            Err(closed) => return Ok(Err(closed)),
        };
        if let Err(closed) = self.answers(crd, bundle, surveyed.sample.as_ref()).await {
            return Ok(Err(closed));
        }
        tracing::debug!(crd = name, objects = surveyed.objects, "every gate is open");
        Ok(Ok(()))
    }

    /// Whether the webhook answers a review, with an object if there is one.
    async fn answers(
        &self,
        crd: &CustomResourceDefinition,
        bundle: &Bundle,
        sample: Option<&Value>,
    ) -> Result<(), Closed> {
        let endpoint = &self.settings.endpoint;
        let answered = probe(&endpoint.for_crd(crd), &bundle.pem, &review(crd, sample)).await;
        answered.map_err(|error| {
            let message = format!("the webhook at {endpoint} does not answer a review: {}", causes(&error));
            Closed::new(Gate::Answers, message)
        })
    }

    /// Changes a CRD, if it has not changed since it was read.
    async fn patch(
        &self,
        name: &str,
        crd: &CustomResourceDefinition,
        patch: Value,
    ) -> Result<CustomResourceDefinition, RegistrationError> {
        write(&self.api(), name, crd, patch).await
    }

    /// Says what has changed since the last round.
    async fn report(&self, states: BTreeMap<String, CrdState>) {
        let former = std::mem::replace(
            &mut *self.states.lock().unwrap_or_else(PoisonError::into_inner),
            states.clone(),
        );
        for (crd, state) in states.iter().filter(|(crd, state)| former.get(*crd) != Some(*state)) {
            match state {
                CrdState::Registered => tracing::info!(crd, "API servers call the webhook and trust it"),
                CrdState::LeftAlone(why) => tracing::warn!(crd, "left its conversion as it is: {why}"),
                CrdState::Held(closed) => {
                    tracing::warn!(crd, reason = %closed.gate, "changed converters are not used: {closed}");
                }
                CrdState::Waiting(closed) => {
                    tracing::warn!(crd, reason = %closed.gate, "not registered: {closed}");
                }
            }
            events::publish(&self.client, &self.settings.instance, crd, state).await;
        }
    }
}
