//! Registers one CRD: creates it, or brings it to where the definition says, step by step. Every write has what was read as its
//! precondition.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use restow_core::agreement::version::CRD_SETTLE_TIME;
use restow_lease::Stop;
use restow_lease::request::{ObjectError, as_read, ask, find};
use restow_migrate::cluster::Cluster;
use restow_webhook::certificates::read_bundle;
use restow_webhook::registration::stanza::{self, Standing};
use restow_webhook::registration::{Closed, ConverterGates as _, Gate, SurveyError, probe, review, survey};
use serde_json::{Value, json};

use crate::converted::Converted;
use crate::error::{CrdsError, causes};
use crate::registration::{Conversion, Plan, plan, storage_version};
use crate::served::{name_of, resource};

/// How often the cluster is asked whether a CRD is served.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often a CRD is read again because another client wrote it.
const ATTEMPTS: u32 = 20;
const FIELD_MANAGER: &str = "restow-operator";

/// One CRD that is registered.
pub(crate) struct Registering<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) definition: &'a CustomResourceDefinition,
    /// The webhook, if it converts this CRD.
    pub(crate) converted: Option<&'a Converted>,
    pub(crate) stop: &'a Stop,
}

impl Registering<'_> {
    /// Returns when the CRD is as the definition says, and served.
    pub(crate) async fn run(&self) -> Result<(), CrdsError> {
        let mut ignore_rest = false;
        for _ in 0..ATTEMPTS {
            let found = self.unless_stopped(find(self.api().get(&self.name()))).await??;
            let plan = plan(found.as_ref(), self.definition, self.conversion(found.as_ref())?, ignore_rest)?;
            let written = match (plan, found) {
                (Plan::Leave, _) => return self.until_established().await,
                (Plan::Create, _) => self.create().await,
                (_, None) => continue,
                (Plan::Change(change), Some(found)) => match self.change(&found, change).await {
                    Ok(after) => {
                        ignore_rest = after.metadata.generation == found.metadata.generation;
                        continue;
                    }
                    Err(error) => Err(error),
                },
                (Plan::Store(patch), Some(found)) => {
                    self.until_established().await?;
                    self.until_settled().await?;
                    self.patch(&found, patch).await.map(|_| "changed the storage version")
                }
            };
            match written {
                Ok(what) => {
                    let version = storage_version(self.definition);
                    tracing::info!(crd = self.name(), version, "{what}");
                }
                // Somebody else wrote it meanwhile: it is read again.
                Err(CrdsError::Crd(ObjectError::Conflict)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(CrdsError::Contended)
    }

    fn name(&self) -> String {
        self.definition.metadata.name.clone().unwrap_or_default()
    }

    fn api(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.cluster.server().client().clone())
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, CrdsError> {
        self.stop.unless(work).await.ok_or(CrdsError::Stopped)
    }

    /// Who converts the objects.
    fn conversion(&self, found: Option<&CustomResourceDefinition>) -> Result<Conversion, CrdsError> {
        let (Some(converted), Some(found)) = (self.converted, found) else {
            return Ok(Conversion::AsDefined);
        };
        match stanza::standing(found, &converted.endpoint) {
            Standing::Ours => Ok(Conversion::Registered),
            // With one version there is nothing to convert.
            Standing::Unconverted if self.definition.spec.versions.len() == 1 => Ok(Conversion::Registered),
            Standing::Unconverted => Ok(Conversion::NotRegistered),
            Standing::Foreign(address) => {
                let message =
                    format!("a webhook at {address} converts it; remove that from spec.conversion first");
                Err(CrdsError::Closed(Closed { gate: Gate::Unclaimed, message }))
            }
        }
    }

    /// Creates the CRD, with the webhook in it.
    async fn create(&self) -> Result<&'static str, CrdsError> {
        let mut definition = self.definition.clone();
        if let Some(converted) = self.converted.filter(|_| definition.spec.versions.len() > 1) {
            let bundle = self.bundle(converted).await?;
            definition = stanza::registered(&definition, &converted.endpoint, &bundle);
        }
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        self.unless_stopped(ask(self.api().create(&params, &definition))).await??;
        Ok("created the CRD")
    }

    async fn bundle(&self, converted: &Converted) -> Result<String, CrdsError> {
        let client = self.cluster.server().client();
        Ok(self.unless_stopped(read_bundle(client, &converted.certificates)).await??.pem)
    }

    /// Changes everything but the storage version, and registers the webhook in the same write: versions of different schemas
    /// are never served without their conversion.
    async fn change(
        &self,
        found: &CustomResourceDefinition,
        change: Value,
    ) -> Result<CustomResourceDefinition, CrdsError> {
        let Some(converted) = self.converted.filter(|_| self.definition.spec.versions.len() > 1) else {
            return self.patch(found, change).await;
        };
        self.check_gates(converted, found).await?;
        if stanza::standing(found, &converted.endpoint) == Standing::Ours {
            return self.patch(found, change).await;
        }
        let endpoint = &converted.endpoint;
        let announced = match stanza::is_announced(found, endpoint) {
            true => found.clone(),
            false => self.patch(found, stanza::announce(found, endpoint)).await?,
        };
        // Read after the announcement: no authority begins to sign from then on that the CRD does not trust.
        let bundle = self.bundle(converted).await?;
        let mut patch = stanza::register(&announced, endpoint, &bundle);
        merge(&mut patch, change);
        let after = self.patch(&announced, patch).await?;
        tracing::info!(crd = self.name(), webhook = %endpoint, "registered the conversion webhook");
        Ok(after)
    }

    /// Every replica converts the new versions, all live objects survive the conversion, and the webhook answers.
    async fn check_gates(
        &self,
        converted: &Converted,
        found: &CustomResourceDefinition,
    ) -> Result<(), CrdsError> {
        let closed = |gate, message| CrdsError::Closed(Closed { gate, message });
        let served = self.unless_stopped(converted.gates.is_served(self.definition)).await?;
        served.map_err(|message| closed(Gate::Served, message))?;
        let client = self.cluster.server().client();
        let surveyed = match self.unless_stopped(survey(client, found, &converted.gates)).await? {
            Ok(surveyed) => surveyed,
            Err(SurveyError::Closed(closed)) => return Err(closed.into()),
            Err(error) => return Err(CrdsError::Survey(error)),
        };
        let bundle = self.bundle(converted).await?;
        let endpoint = converted.endpoint.for_crd(self.definition);
        let review = review(self.definition, surveyed.sample.as_ref());
        let answered = self.unless_stopped(probe(&endpoint, &bundle, &review)).await?;
        answered.map_err(|error| {
            let webhook = &converted.endpoint;
            let message = format!("the webhook at {webhook} does not answer a review: {}", causes(&error));
            closed(Gate::Answers, message)
        })
    }

    /// Changes the CRD, if it has not changed since it was read.
    async fn patch(
        &self,
        found: &CustomResourceDefinition,
        mut patch: Value,
    ) -> Result<CustomResourceDefinition, CrdsError> {
        let (uid, resource_version) = as_read(&found.metadata)?;
        merge(&mut patch, json!({"metadata": {"uid": uid, "resourceVersion": resource_version}}));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let (api, name) = (self.api(), self.name());
        let written = self.unless_stopped(ask(api.patch(&name, &params, &Patch::Merge(patch)))).await?;
        Ok(written?)
    }

    /// Waits until the CRD is served.
    async fn until_established(&self) -> Result<(), CrdsError> {
        loop {
            let found = self.unless_stopped(ask(self.api().get(&self.name()))).await??;
            let conditions = found.status.iter().flat_map(|status| status.conditions.iter().flatten());
            if conditions
                .into_iter()
                .any(|condition| condition.type_ == "Established" && condition.status == "True")
            {
                return Ok(());
            }
            self.unless_stopped(tokio::time::sleep(ASK_EVERY)).await?;
        }
    }

    /// Waits until every API server knows the CRD as it is now: one that does not could not read what others store.
    async fn until_settled(&self) -> Result<(), CrdsError> {
        let found = resource(self.cluster, &name_of(self.definition), self.stop).await?;
        self.unless_stopped(Box::pin(self.cluster.agreement(&found))).await??;
        // Timestamps and discovery say nothing about handlers, which follow later.
        let wait = CRD_SETTLE_TIME + Duration::from_secs(1);
        tracing::info!(
            crd = self.name(),
            "waiting {wait:?} for the API servers before the storage version changes"
        );
        self.unless_stopped(tokio::time::sleep(wait)).await
    }
}

/// Adds the fields of one patch to another.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
