//! What the API servers of a cluster say: the inventory of resources, and whether all servers agree on one.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use restow_core::agreement;
use restow_core::agreement::member::Member;
use restow_core::agreement::version::{Agreement, DiscoveryAnswers, ServerObservation};
use restow_core::resource::inventory::{Document, Obstacle, Origin, Resource, inventory, take_registered};
use serde::Deserialize;

use super::handle::{AgreementError, Cluster, Discovered, Inventory, SAMPLE_EVERY, Trust};
use super::membership::{self, Members};
use super::peers::answered;
use super::{discovery, registered};
use crate::client::RequestError;

/// How often the name of the cluster is asked for before its address has to do.
const IDENTITY_TRIES: u32 = 10;

impl Cluster {
    /// All resources, and those discovery documents that could not be had.
    pub async fn inventory(&self, include_events: bool) -> Result<Inventory, RequestError> {
        self.discover(include_events).await.map(|discovered| discovered.inventory)
    }

    /// Everything that tells which resources there are, and what that comes to.
    pub(crate) async fn discover(&self, include_events: bool) -> Result<Discovered, RequestError> {
        let documents = discovery::documents(&self.server).await?;
        let crds = discovery::crds(&self.server).await?;
        let mut resources = inventory(&documents, &crds, include_events);
        let mut hidden: Vec<_> = resources.iter_mut().filter(|one| self.goes_by_registered(one)).collect();
        if !hidden.is_empty() && documents.iter().any(|one| registered::are_in(&one.version)) {
            let registered = self.registered().await?;
            hidden.iter_mut().for_each(|resource| {
                let version = registered.as_ref().map(|all| all.get(&resource.name).cloned());
                take_registered(resource, version.map_err(Clone::clone));
            });
        }
        let migratable = resources.iter().filter(|resource| resource.obstacle.is_none());
        let versions = migratable.filter_map(|resource| resource.endpoint().cloned()).collect();
        *self.versions.lock().unwrap_or_else(PoisonError::into_inner) = versions;
        let unavailable = |document: &Document| {
            let why = document.resources.as_ref().err()?;
            Some((document.version.clone(), Obstacle::Unavailable(why.clone())))
        };
        let unavailable = documents.iter().filter_map(unavailable).collect();
        Ok(Discovered { inventory: Inventory { resources, unavailable }, documents, crds })
    }

    /// A name for this cluster that outlives its addresses, where it may be read.
    pub async fn identity(&self) -> String {
        #[derive(Deserialize)]
        struct Namespace {
            metadata: Meta,
        }
        #[derive(Deserialize)]
        struct Meta {
            uid: String,
        }
        for _ in 0..IDENTITY_TRIES {
            match self.server.get::<Namespace>("/api/v1/namespaces/kube-system").await {
                Ok(namespace) => return namespace.metadata.uid,
                Err(error) if error.is_final() && error.code() != Some(404) => break,
                // A server that restarts must not get another name; every cluster has this namespace.
                Err(_) => tokio::time::sleep(SAMPLE_EVERY).await,
            }
        }
        self.server.name().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
    }

    /// Whether the API servers agree on how a resource is stored.
    pub async fn agreement(&self, resource: &Resource) -> Result<Agreement, AgreementError> {
        let seen = self.look(resource).await?;
        let agreement =
            agreement::version::decide(&seen, restow_clock::now()).map_err(AgreementError::Disagreement)?;
        self.agreed.store(true, Ordering::Relaxed);
        Ok(agreement)
    }

    /// Whether the API servers have agreed on some resource before: then each was heard, and may be read.
    pub(crate) fn has_agreed(&self) -> bool {
        self.agreed.load(Ordering::Relaxed)
    }

    async fn look(&self, resource: &Resource) -> Result<ServerObservation, AgreementError> {
        let kind = resource.kind.clone();
        let definition = self.definition(resource).await?;
        if let Trust::Single = self.trust {
            let asked = DiscoveryAnswers::Single(answered(&self.server, resource).await?);
            return Ok(ServerObservation {
                kind,
                members: Ok(Vec::new()),
                storage_version: Ok(None),
                asked,
                definition,
            });
        }
        let members = self.all_members().await?;
        let members = members.map(|members| members.that_may_store(resource.origin).to_vec());
        let storage_version = self.storage_version(resource).await?;
        let asked = match (&self.trust, &storage_version) {
            _ if resource.origin == Origin::Aggregated => DiscoveryAnswers::Aggregated,
            // Whom the user names is asked, whatever else there is to go by.
            (Trust::Named(_), _) => self.ask_named(&members, resource).await,
            (Trust::Sampled(period), _) => {
                let version = resource.endpoint().into_iter().cloned().collect();
                self.sample(*period, version, &members).await?.of(resource)
            }
            (_, Ok(Some(_))) => DiscoveryAnswers::Members(Vec::new()),
            (_, Ok(None) | Err(_)) => DiscoveryAnswers::Members(self.ask_members(&members, resource).await?),
        };
        Ok(ServerObservation { kind, members, storage_version, asked, definition })
    }

    /// The kube-apiservers, as [`all_members`](Self::all_members) has them.
    pub(super) async fn members(&self) -> Result<Result<Vec<Member>, String>, RequestError> {
        Ok(self.all_members().await?.map(|members| members.kube_apiservers))
    }

    /// The API servers, or why they can never be listed: the right to is missing, or the API is not served. Any other
    /// error may pass.
    pub(crate) async fn all_members(&self) -> Result<Result<Members, String>, RequestError> {
        let error = match membership::members(&self.server).await {
            Ok(members) => return Ok(Ok(members)),
            Err(error) => error,
        };
        let is_final = match error.code() {
            Some(403) => true,
            Some(404) => !membership::is_served(&self.server).await?,
            _ => false,
        };
        if is_final { Ok(Err(error.to_string())) } else { Err(error) }
    }

    /// The state of a custom resource's CRD: its generation counts every change of its spec.
    async fn definition(&self, resource: &Resource) -> Result<Option<String>, AgreementError> {
        let Some(crd) = &resource.crd else { return Ok(None) };
        match discovery::crd_generation(&self.server, &crd.name).await {
            Ok(definition) => Ok(Some(definition)),
            Err(error) => Err(self.undefined(resource, error).await),
        }
    }

    /// What an error of reading the definition of a resource means: a 404 may be about something else.
    pub(crate) async fn undefined(&self, resource: &Resource, error: RequestError) -> AgreementError {
        if error.code() == Some(404)
            && discovery::is_undefined(&self.server, &resource.name).await.is_ok_and(|gone| gone)
        {
            return AgreementError::Undefined;
        }
        error.into()
    }
}
