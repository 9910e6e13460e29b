//! Which API servers there are, by their identity Leases.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use restow_core::agreement;
use restow_core::agreement::member::Member;

use restow_lease::identity::{LABEL, NAMESPACE};
use restow_lease::request::{RequestError, ask};

/// All identity Leases, of kube-apiservers and aggregated ones alike. An error is an error, never "none".
pub(crate) async fn leases(client: &Client) -> Result<Vec<Lease>, RequestError> {
    let leases = Api::<Lease>::namespaced(client.clone(), NAMESPACE);
    Ok(ask(leases.list(&ListParams::default().labels(LABEL))).await?.items)
}

/// The ids of those that are alive.
pub(crate) fn live(leases: &[Lease]) -> BTreeSet<String> {
    let members: Vec<Member> = leases.iter().cloned().map(member).collect();
    agreement::member::live(&members, restow_clock::now())
        .into_iter()
        .map(|member| member.name.clone())
        .collect()
}

fn member(lease: Lease) -> Member {
    let spec = lease.spec.unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let mut labels = lease.metadata.labels.unwrap_or_default();
    Member {
        component: labels.remove(LABEL).unwrap_or_default(),
        name: lease.metadata.name.unwrap_or_default(),
        holder: spec.holder_identity.unwrap_or_default(),
        address: None,
        expires: Some(agreement::member::expires(spec.renew_time.map(|time| time.0), seconds)),
    }
}
