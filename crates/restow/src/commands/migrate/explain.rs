//! Why a migration ended early, and what to do about it.

use restow_api::Reason;
use restow_core::agreement::version::Disagreement;
use restow_core::controller::troubleshooting::explained;
use restow_core::resource::inventory::Resource;
use restow_core::resource::name::GroupResource;
use restow_migrate::access::{self, Missing};
use restow_migrate::cluster::Cluster;
use restow_migrate::migration::Failure;
use restow_migrate::pages::PageError;
use restow_migrate::rewrite::Unfinished;

/// Says why, names the permissions that are missing, and where more is said about it.
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
    match reason(failure) {
        Some(reason) => explained(reason, &text),
        None => text,
    }
}

/// The reason that a controller would give, by which docs/TROUBLESHOOTING.md has it.
fn reason(failure: &Failure) -> Option<Reason> {
    match failure {
        Failure::Disagreement(_) => Some(Reason::WaitingForAgreement),
        Failure::Moved(_) => Some(Reason::StorageVersionChanged),
        Failure::Restless(_) => Some(Reason::Restless),
        Failure::Page(PageError::Refused { code, .. }) => {
            Some(refusal(Some(*code)).unwrap_or(Reason::ListRefused))
        }
        Failure::Page(PageError::Unavailable { .. }) => Some(Reason::WaitingForServer),
        Failure::Page(PageError::Vanished(_)) => Some(Reason::NotServed),
        Failure::Page(_) => Some(Reason::ListRefused),
        Failure::Unfinished(Unfinished::Unavailable(_)) => Some(Reason::WaitingForServer),
        Failure::Unfinished(Unfinished::Stopped) | Failure::Journal(_) => None,
        Failure::Unfinished(Unfinished::Unauthorized(_)) => Some(Reason::Unauthorized),
        Failure::Unfinished(Unfinished::Vanished(_)) => Some(Reason::NotServed),
        Failure::Request(error) => Some(refusal(error.code()).unwrap_or(Reason::WaitingForServer)),
    }
}

/// The reason for an answer that is about the user.
fn refusal(code: Option<u16>) -> Option<Reason> {
    match code {
        Some(401) => Some(Reason::Unauthorized),
        Some(403) => Some(Reason::Forbidden),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_but_a_stop_is_explained_somewhere() {
        let refused = |code| PageError::Refused {
            resource: GroupResource::new("", "secrets"),
            code,
            message: String::new(),
        };
        for (failure, expected) in [
            (Failure::Disagreement(Disagreement::Unsteady), Some(Reason::WaitingForAgreement)),
            (Failure::Moved(String::new()), Some(Reason::StorageVersionChanged)),
            (Failure::Restless(String::new()), Some(Reason::Restless)),
            (Failure::Page(refused(403)), Some(Reason::Forbidden)),
            (Failure::Page(refused(401)), Some(Reason::Unauthorized)),
            (Failure::Page(refused(405)), Some(Reason::ListRefused)),
            (Failure::Unfinished(Unfinished::Stopped), None),
            (Failure::Journal(std::io::Error::other("full")), None),
        ] {
            assert_eq!(reason(&failure), expected, "{failure}");
            // The page has a section for each.
            let text = expected.map_or_else(String::new, |reason| explained(reason, ""));
            assert_eq!(text.contains("docs/TROUBLESHOOTING.md#"), expected.is_some(), "{failure}");
        }
    }
}
