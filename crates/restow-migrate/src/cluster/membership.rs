//! Which API servers there are: their identity Leases, else the endpoints of `kubernetes`.

use jiff::Timestamp;
use restow_core::agreement;
use restow_core::agreement::member::{KUBE_APISERVER, Member};
use restow_core::resource::inventory::Origin;
use restow_core::resource::name::GroupVersion;
use serde::Deserialize;

use super::discovery::{self, is_kind};
use crate::client::{RequestError, Server};

/// The label of identity Leases; its value is the kind of server.
const COMPONENT: &str = "apiserver.kubernetes.io/identity";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
    ?labelSelector=apiserver.kubernetes.io%2Fidentity";
const ENDPOINTS: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
    ?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes";
const ADDRESS: &str = "kubernetes.io/peer-advertise-address";

#[derive(Deserialize)]
struct Items<T> {
    kind: String,
    items: Vec<T>,
}

#[derive(Deserialize)]
struct Lease {
    metadata: LeaseMeta,
    spec: LeaseSpec,
}

#[derive(Deserialize)]
struct LeaseMeta {
    name: String,
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    #[serde(default)]
    holder_identity: String,
    lease_duration_seconds: Option<u64>,
    renew_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct EndpointSlice {
    metadata: SliceMeta,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceMeta {
    resource_version: String,
}

#[derive(Deserialize)]
struct Endpoint {
    addresses: Vec<String>,
}

#[derive(Deserialize)]
struct Port {
    port: Option<u16>,
}

/// The servers there are, expired ones included.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    /// The kube-apiservers.
    pub kube_apiservers: Vec<Member>,
    /// Aggregated API servers that have an identity Lease.
    pub aggregated: Vec<Member>,
}

impl Members {
    /// Those that may store a resource of such an origin.
    pub(crate) fn that_may_store(&self, origin: Origin) -> &[Member] {
        match origin {
            Origin::Aggregated => &self.aggregated,
            Origin::BuiltIn | Origin::Custom => &self.kube_apiservers,
        }
    }
}

/// The members, expired ones included. An error is an error, never "gone".
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

/// Whether a server lists the API that identity Leases are of: a 404 on them may be somebody else's.
pub(crate) async fn is_served(server: &Server) -> Result<bool, RequestError> {
    let leases = GroupVersion::new("coordination.k8s.io", "v1");
    Ok(discovery::document_if_listed(server, &leases).await?.is_some())
}

async fn endpoints(server: &Server) -> Result<Vec<Member>, RequestError> {
    let slices: Items<EndpointSlice> = server.get(ENDPOINTS).await?;
    is_kind(ENDPOINTS, &slices.kind, "EndpointSliceList")?;
    let members = slices.items.into_iter().flat_map(|slice| {
        let state = slice.metadata.resource_version;
        let port = slice.ports.first().and_then(|port| port.port).unwrap_or(443);
        let addresses = slice.endpoints.into_iter().flat_map(|endpoint| endpoint.addresses);
        addresses.map(move |address| {
            let address = if address.contains(':') {
                format!("[{address}]:{port}")
            } else {
                format!("{address}:{port}")
            };
            Member {
                name: address.clone(),
                // A server that stops in good order takes its address away; nothing tells of one that crashes.
                holder: format!("{address}@{state}"),
                address: Some(address),
                expires: None,
                component: KUBE_APISERVER.to_owned(),
            }
        })
    });
    Ok(members.collect())
}

fn member(lease: Lease) -> Member {
    Member {
        address: lease.metadata.annotations.get(ADDRESS).cloned(),
        component: lease.metadata.labels.get(COMPONENT).cloned().unwrap_or_default(),
        name: lease.metadata.name,
        holder: lease.spec.holder_identity,
        expires: Some(agreement::member::expires(lease.spec.renew_time, lease.spec.lease_duration_seconds)),
    }
}
