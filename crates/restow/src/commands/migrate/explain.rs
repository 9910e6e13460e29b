//! Why a migration ended early, and what to do about it.

use restow_api::Reason;
use restow_core::agreement::version::Disagreement;
use restow_core::controller::troubleshooting::explained;
use restow_core::resource::inventory::Resource;
use restow_core::resource::name::GroupResource;
use restow_migrate::client::access::{self, Missing};
use restow_migrate::cluster::Cluster;
use restow_migrate::list::PageError;
use restow_migrate::migration::MigrationError;
use restow_migrate::rewrite::Unfinished;

/// Explains a failure, names missing permissions, and refers to docs/TROUBLESHOOTING.md.
pub(crate) async fn explain(cluster: &Cluster, resource: &Resource, failure: &MigrationError) -> String {
    let cause = std::error::Error::source(failure).map(|cause| format!(": {cause}")).unwrap_or_default();
    let mut text = format!("{failure}{cause}");
    let mut missing = Vec::new();
    for (namespace, name, verb) in suspected(resource, failure) {
        if missing.is_empty() {
            missing =
                access::missing_in(cluster.server(), namespace, &name, &[verb]).await.unwrap_or_default();
        }
    }
    if !missing.is_empty() {
        text = format!("{text}; {}", Missing::grant(&missing));
    }
    if let MigrationError::Disagreement(why) = failure {
        let otherwise = if missing.is_empty() { "" } else { "without it, " };
        text = format!("{text}; {otherwise}{}", why.advice());
    }
    match reason(failure) {
        Some(reason) => explained(reason, &text),
        None => text,
    }
}

/// The reason that a controller would give, which names a section of docs/TROUBLESHOOTING.md.
fn reason(failure: &MigrationError) -> Option<Reason> {
    match failure {
        MigrationError::Disagreement(_) => Some(Reason::WaitingForAgreement),
        MigrationError::Moved(_) => Some(Reason::StorageVersionChanged),
        MigrationError::Restless(_) => Some(Reason::Restless),
        MigrationError::Page(PageError::Refused { code, .. }) => {
            Some(refusal(Some(*code)).unwrap_or(Reason::ListRefused))
        }
        MigrationError::Page(PageError::Unavailable { .. }) => Some(Reason::WaitingForServer),
        MigrationError::Page(PageError::Vanished(_)) => Some(Reason::NotServed),
        MigrationError::Page(_) => Some(Reason::ListRefused),
        MigrationError::Unfinished(Unfinished::Unavailable(_)) => Some(Reason::WaitingForServer),
        MigrationError::Unfinished(Unfinished::Stopped) | MigrationError::Journal(_) => None,
        MigrationError::Unfinished(Unfinished::Unauthorized(_)) => Some(Reason::Unauthorized),
        MigrationError::Unfinished(Unfinished::Vanished(_)) => Some(Reason::NotServed),
        MigrationError::Request(error) => Some(refusal(error.code()).unwrap_or(Reason::WaitingForServer)),
    }
}

/// The reason for a 401 or 403.
fn refusal(code: Option<u16>) -> Option<Reason> {
    match code {
        Some(401) => Some(Reason::Unauthorized),
        Some(403) => Some(Reason::Forbidden),
        _ => None,
    }
}

/// A permission: in which namespace, on what, which verb.
type Permission = (Option<&'static str>, GroupResource, &'static str);

/// The permissions that may be missing after a failure; the first missing one explains it.
fn suspected(resource: &Resource, failure: &MigrationError) -> Vec<Permission> {
    match failure {
        // The endpoints are read if there is no Lease.
        MigrationError::Disagreement(Disagreement::UnknownMembers(_)) => vec![
            (Some("kube-system"), GroupResource::new("coordination.k8s.io", "leases"), "list"),
            (Some("default"), GroupResource::new("discovery.k8s.io", "endpointslices"), "list"),
        ],
        MigrationError::Disagreement(Disagreement::StorageVersionUnreadable(_)) => {
            vec![(None, GroupResource::new("internal.apiserver.k8s.io", "storageversions"), "get")]
        }
        // Before the first write, only its CRD is read by name.
        MigrationError::Request(error) if error.code() == Some(403) && resource.crd.is_some() => {
            vec![(None, GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"), "get")]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use restow_core::resource::inventory::Origin;

    use super::*;

    #[test]
    fn every_failure_except_a_stop_has_a_troubleshooting_section() {
        let refused = |code| PageError::Refused {
            resource: GroupResource::new("", "secrets"),
            code,
            message: String::new(),
        };
        for (failure, expected) in [
            (MigrationError::Disagreement(Disagreement::ServersChanged), Some(Reason::WaitingForAgreement)),
            (MigrationError::Moved(String::new()), Some(Reason::StorageVersionChanged)),
            (MigrationError::Restless(String::new()), Some(Reason::Restless)),
            (MigrationError::Page(refused(403)), Some(Reason::Forbidden)),
            (MigrationError::Page(refused(401)), Some(Reason::Unauthorized)),
            (MigrationError::Page(refused(405)), Some(Reason::ListRefused)),
            (MigrationError::Unfinished(Unfinished::Stopped), None),
            (MigrationError::Journal(std::io::Error::other("full")), None),
        ] {
            assert_eq!(reason(&failure), expected, "{failure}");
            // The page has a section for each.
            let text = expected.map_or_else(String::new, |reason| explained(reason, ""));
            assert_eq!(text.contains("docs/TROUBLESHOOTING.md#"), expected.is_some(), "{failure}");
        }
    }

    #[test]
    fn the_missing_permission_is_looked_for_where_the_failure_points() {
        let resource = Resource {
            name: GroupResource::new("example.com", "flunders"),
            singular: String::new(),
            kind: "Flunder".to_owned(),
            short_names: Vec::new(),
            namespaced: false,
            served: Vec::new(),
            hash: None,
            storage_version: None,
            origin: Origin::Aggregated,
            crd: None,
            shared_by: Vec::new(),
            obstacle: None,
        };
        let why = || "403".to_owned();
        for (disagreement, expected) in [
            (
                Disagreement::UnknownMembers(why()),
                &["list leases.coordination.k8s.io", "list endpointslices.discovery.k8s.io"][..],
            ),
            (
                Disagreement::StorageVersionUnreadable(why()),
                &["get storageversions.internal.apiserver.k8s.io"],
            ),
            (Disagreement::Aggregated, &[]),
        ] {
            let failure = MigrationError::Disagreement(disagreement);
            let found: Vec<String> = suspected(&resource, &failure)
                .iter()
                .map(|(_, name, verb)| format!("{verb} {name}"))
                .collect();
            assert_eq!(found, expected, "{failure}");
        }
    }
}
