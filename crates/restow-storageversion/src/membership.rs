//! Lists API servers by their identity Leases.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use restow_core::agreement;
use restow_core::agreement::member::Member;

use restow_lease::identity::{LABEL, NAMESPACE, member};
use restow_lease::request::{ObjectError, ask};

/// All identity Leases, of kube-apiservers and of aggregated API servers. An error never counts as an empty list.
pub(crate) async fn leases(client: &Client) -> Result<Vec<Lease>, ObjectError> {
    let leases = Api::<Lease>::namespaced(client.clone(), NAMESPACE);
    Ok(ask(leases.list(&ListParams::default().labels(LABEL))).await?.items)
}

/// The ids of the servers that are alive.
pub(crate) fn live(leases: &[Lease]) -> BTreeSet<String> {
    let members: Vec<Member> = leases.iter().cloned().map(member).collect();
    agreement::member::live(&members, restow_clock::now())
        .into_iter()
        .map(|member| member.name.clone())
        .collect()
}
