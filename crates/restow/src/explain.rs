//! Why a migration ended early, and what to do about it.

use restow_core::agreement::Disagreement;
use restow_core::inventory::Resource;
use restow_core::resource::GroupResource;
use restow_migrate::access::{self, Missing};
use restow_migrate::cluster::Cluster;
use restow_migrate::migration::Failure;

/// Says why, and names the permissions that are missing.
pub(crate) async fn explain(cluster: &Cluster, resource: &Resource, failure: &Failure) -> String {
    let cause = std::error::Error::source(failure).map(|cause| format!(": {cause}")).unwrap_or_default();
    let mut text = format!("{failure}{cause}");
    let missing = match suspected(resource, failure) {
        Some((namespace, name, verb)) => {
            access::missing_in(cluster.server(), namespace, &name, &[verb]).await.unwrap_or_default()
        }
        None => Vec::new(),
    };
    if !missing.is_empty() {
        text = format!("{text}; {}", Missing::grant(&missing));
    }
    if let Failure::Disagreement(why) = failure {
        let otherwise = if missing.is_empty() { "" } else { "without it, " };
        text = format!("{text}; {otherwise}{}", why.advice());
    }
    text
}

/// The permission whose lack would explain a failure: in which namespace, on what, which verb.
fn suspected(
    resource: &Resource,
    failure: &Failure,
) -> Option<(Option<&'static str>, GroupResource, &'static str)> {
    match failure {
        Failure::Disagreement(Disagreement::UnknownMembers(_)) => {
            let leases = GroupResource::new("coordination.k8s.io", "leases");
            Some((Some("kube-system"), leases, "list"))
        }
        // Before the first write, its definition is all that is read by name.
        Failure::Request(error) if error.code() == Some(403) && resource.crd.is_some() => {
            Some((None, GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"), "get"))
        }
        _ => None,
    }
}
