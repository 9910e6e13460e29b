//! Lists the API servers: by their identity Leases, otherwise by the endpoints of the Service `kubernetes`.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use restow_core::agreement::member::{KUBE_APISERVER, Member};
use restow_core::resource::inventory::Origin;
use restow_core::resource::name::GroupVersion;
use restow_lease::identity::member;
use serde::Deserialize;

use super::discovery::{self, is_kind};
use crate::client::{RequestError, Server};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
    ?labelSelector=apiserver.kubernetes.io%2Fidentity";
const ENDPOINTS: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
    ?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes";

/// A list whose kind and items are required. `k8s_openapi::List` would read `{}` as an empty list.
#[derive(Deserialize)]
struct Items<T> {
    kind: String,
    items: Vec<T>,
}

/// The API servers, including those whose Lease has expired.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    pub kube_apiservers: Vec<Member>,
    /// Aggregated API servers that have an identity Lease.
    pub aggregated: Vec<Member>,
}

impl Members {
    /// The servers that may store a resource of this origin.
    pub(crate) fn that_may_store(&self, origin: Origin) -> &[Member] {
        match origin {
            Origin::Aggregated => &self.aggregated,
            Origin::BuiltIn | Origin::Custom => &self.kube_apiservers,
        }
    }
}

/// Lists the API servers, including those whose Lease has expired. An error never means that a server is gone.
pub(crate) async fn members(server: &Server) -> Result<Members, RequestError> {
    let leases: Items<Lease> = server.get(LEASES).await?;
    is_kind(LEASES, &leases.kind, "LeaseList")?;
    let is_kube_apiserver = |member: &Member| member.component == KUBE_APISERVER;
    let (mut kube_apiservers, aggregated): (Vec<_>, Vec<_>) =
        leases.items.into_iter().map(member).partition(is_kube_apiserver);
    if kube_apiservers.is_empty() {
        kube_apiservers = endpoints(server).await?;
    }
    Ok(Members { kube_apiservers, aggregated })
}

/// Whether a server serves Leases. A 404 alone does not show that it does not.
pub(crate) async fn is_served(server: &Server) -> Result<bool, RequestError> {
    let leases = GroupVersion::new("coordination.k8s.io", "v1");
    Ok(discovery::document_if_listed(server, &leases).await?.is_some())
}

async fn endpoints(server: &Server) -> Result<Vec<Member>, RequestError> {
    let slices: Items<EndpointSlice> = server.get(ENDPOINTS).await?;
    is_kind(ENDPOINTS, &slices.kind, "EndpointSliceList")?;
    let members = slices.items.into_iter().flat_map(|slice| {
        let state = slice.metadata.resource_version.unwrap_or_default();
        let port = slice.ports.into_iter().flatten().next().and_then(|port| port.port).unwrap_or(443);
        let addresses = slice.endpoints.into_iter().flatten().flat_map(|endpoint| endpoint.addresses);
        addresses.map(move |address| {
            let address = if address.contains(':') {
                format!("[{address}]:{port}")
            } else {
                format!("{address}:{port}")
            };
            Member {
                name: address.clone(),
                // A server that stops removes its address; one that crashes does not.
                holder: format!("{address}@{state}"),
                address: Some(address),
                expires: None,
                component: KUBE_APISERVER.to_owned(),
            }
        })
    });
    Ok(members.collect())
}
