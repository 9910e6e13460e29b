//! The inventory of resources, and whether all API servers agree on how a resource is stored.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use restow_core::agreement;
use restow_core::agreement::member::Member;
use restow_core::agreement::version::{Agreement, DiscoveryAnswers, ServerObservation};
use restow_core::resource::inventory::{Document, Obstacle, Origin, Resource, inventory, take_registered};
use serde::Deserialize;

use super::handle::{AgreementError, Cluster, Discovered, Inventory, SAMPLE_EVERY, Trust};
use super::membership::{self, Members};
use super::peers::published_hash;
use super::{discovery, registered};
use crate::client::RequestError;
use crate::client::access::Access;

/// How many times the name of the cluster is read before its address is used instead.
const IDENTITY_TRIES: u32 = 10;

impl Cluster {
    /// All resources, and the discovery documents that could not be read.
    pub async fn inventory(&self, include_events: bool) -> Result<Inventory, RequestError> {
        self.discover(include_events).await.map(|discovered| discovered.inventory)
    }

    /// Reads discovery documents and CRDs, and makes the inventory from them.
    pub(crate) async fn discover(&self, include_events: bool) -> Result<Discovered, RequestError> {
        let documents = discovery::documents(&self.server).await?;
        let crds = discovery::crds(&self.server).await?;
        let mut resources = inventory(&documents, &crds, include_events);
        let mut hidden: Vec<_> = resources.iter_mut().filter(|one| self.goes_by_registered(one)).collect();
        if !hidden.is_empty() && documents.iter().any(|one| registered::are_in(&one.version)) {
            let registered = self.registered().await?.into_result();
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

    /// The uid of the namespace `kube-system`, which names the cluster; its address if that cannot be read.
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
                // A restarting server must not lead to another name. Every cluster has this namespace.
                Err(_) => tokio::time::sleep(SAMPLE_EVERY).await,
            }
        }
        self.server.name().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
    }

    /// Whether the API servers agree on how a resource is stored.
    pub async fn agreement(&self, resource: &Resource) -> Result<Agreement, AgreementError> {
        let seen = self.observe(resource).await?;
        let agreement =
            agreement::version::decide(&seen, restow_clock::now()).map_err(AgreementError::Disagreement)?;
        self.agreed.store(true, Ordering::Relaxed);
        Ok(agreement)
    }

    /// Whether the API servers have agreed on some resource before. Each was reachable and readable then.
    pub(crate) fn has_agreed(&self) -> bool {
        self.agreed.load(Ordering::Relaxed)
    }

    async fn observe(&self, resource: &Resource) -> Result<ServerObservation, AgreementError> {
        let kind = resource.kind.clone();
        let definition = self.definition(resource).await?;
        if let Trust::Single = self.trust {
            let asked = DiscoveryAnswers::Single(published_hash(&self.server, resource).await?);
            return Ok(ServerObservation {
                kind,
                members: Ok(Vec::new()),
                storage_version: Ok(None),
                asked,
                definition,
            });
        }
        let members = self.all_members().await?.into_result();
        let members = members.map(|members| members.that_may_store(resource.origin).to_vec());
        let storage_version = self.storage_version(resource).await?.into_result();
        let asked = match (&self.trust, &storage_version) {
            _ if resource.origin == Origin::Aggregated => DiscoveryAnswers::Aggregated,
            // Servers that the user names are always asked.
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

    /// The kube-apiservers among [`all_members`](Self::all_members).
    pub(super) async fn members(&self) -> Result<Access<Vec<Member>>, RequestError> {
        Ok(self.all_members().await?.map(|members| members.kube_apiservers))
    }

    /// The API servers. Access is denied only for good; any other error may pass.
    pub(crate) async fn all_members(&self) -> Result<Access<Members>, RequestError> {
        let error = match membership::members(&self.server).await {
            Ok(members) => return Ok(Access::Granted(members)),
            Err(error) => error,
        };
        let is_final = match error.code() {
            Some(403) => true,
            Some(404) => !membership::is_served(&self.server).await?,
            _ => false,
        };
        if is_final { Ok(Access::Denied(error.to_string())) } else { Err(error) }
    }

    /// The uid and generation of a custom resource's CRD. The generation counts every change of its spec.
    async fn definition(&self, resource: &Resource) -> Result<Option<String>, AgreementError> {
        let Some(crd) = &resource.crd else { return Ok(None) };
        match discovery::crd_generation(&self.server, &crd.name).await {
            Ok(definition) => Ok(Some(definition)),
            Err(error) => Err(self.undefined(resource, error).await),
        }
    }

    /// Interprets an error of reading a CRD. A 404 may come from something between restow and the API server.
    pub(crate) async fn undefined(&self, resource: &Resource, error: RequestError) -> AgreementError {
        if error.code() == Some(404)
            && discovery::is_undefined(&self.server, &resource.name).await.is_ok_and(|gone| gone)
        {
            return AgreementError::Undefined;
        }
        error.into()
    }
}
