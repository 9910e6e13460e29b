//! Announces what the controllers will do when they start.

use jiff::Timestamp;
use kube::ResourceExt as _;
use restow_api::StorageState;
use restow_core::agreement::encryption::KeyRequirement;
use restow_core::controller::evidence::is_unknown;
use restow_core::resource::name::GroupResource;
use restow_migrate::client::Server;

use super::manifests::Setup;
use crate::commands::controller::Name as Controller;
use crate::objects;
use crate::output::say;
use crate::render::text::counted;

/// Prints which resources will be rewritten once, because it is not known how they are stored.
pub(crate) async fn announce(server: &Server, setup: &Setup) {
    // Without the CRDs there are no states. Without permission to read them, the warning names too many resources.
    let states: Vec<StorageState> = objects::list_if_defined(server).await.unwrap_or_default();
    let count = unknown(setup, &states, restow_clock::now()).len();
    if setup.workload.is_none() || count == 0 {
        return;
    }
    let resources = counted(count as u64, "resource");
    say!(
        "when the controllers start, they rewrite every object of {resources} once, because it is not known how \
        they are stored; existing migrations of these resources are replaced. To start with fewer, name the \
        resources; to go slowly, use --pace gentle"
    );
}

/// The resources that the controllers migrate when they start.
fn unknown<'a>(setup: &'a Setup, states: &[StorageState], now: Timestamp) -> Vec<&'a GroupResource> {
    let runs = |name| setup.controllers.contains(&name);
    let is_unknown = |resource: &&GroupResource| {
        let keyed = runs(Controller::Encryption)
            && KeyRequirement::of_controller(resource, setup.encrypted.as_deref()).is_watched();
        let state = states.iter().find(|state| state.name_any() == resource.to_string());
        let status = state.and_then(|state| state.status.as_ref());
        (keyed || runs(Controller::Trigger)) && is_unknown(status, keyed, now)
    };
    setup.resources.iter().filter(is_unknown).collect()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use restow_api::{StorageStateSpec, StorageStateStatus};

    use super::*;
    use crate::commands::install::rules::{InTree, Listing};

    #[test]
    fn what_is_not_known_is_announced() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let state = |name: &str, agreement: Option<&str>, age: i64| {
            let mut state = StorageState::new(name, StorageStateSpec::default());
            state.status = Some(StorageStateStatus {
                persisted_storage_version_hashes: vec!["x".to_owned()],
                current_storage_version_hash: Some("x".to_owned()),
                current_encryption_config_hash: (name == "secrets").then(|| "k".to_owned()),
                agreement: agreement.map(str::to_owned),
                last_heartbeat_time: Some(Time(now - SignedDuration::from_secs(age))),
                ..StorageStateStatus::default()
            });
            state
        };
        let fresh = || vec![state("secrets", Some("direct"), 60), state("configmaps", Some("direct"), 60)];
        let stale = vec![state("secrets", Some("direct"), 601), state("configmaps", Some("direct"), 60)];
        let foreign = vec![state("secrets", None, 60), state("configmaps", None, 60)];
        let mut keyless = fresh();
        keyless[0].status.as_mut().unwrap().current_encryption_config_hash = None;
        let (trigger, encryption) = (Controller::Trigger, Controller::Encryption);
        for (what, controllers, states, expected) in [
            ("the first install", vec![trigger], Vec::new(), "secrets configmaps"),
            ("an upgrade", vec![trigger, encryption], fresh(), ""),
            ("a reinstall", vec![trigger, encryption], stale, "secrets"),
            ("a switch from another migrator", vec![trigger], foreign, "secrets configmaps"),
            ("keys alone", vec![encryption], Vec::new(), "secrets"),
            ("keys of what was watched without", vec![encryption], keyless, "secrets"),
            ("the migrator alone", vec![Controller::Migrator], Vec::new(), ""),
        ] {
            let setup = Setup {
                namespace: String::new(),
                resources: ["secrets", "configmaps"].map(GroupResource::parse).to_vec(),
                controllers,
                in_tree: InTree::Unused,
                listing: Listing::Chunked,
                define_in_tree: false,
                given: Vec::new(),
                encrypted: None,
                workload: None,
            };
            let found: Vec<String> =
                unknown(&setup, &states, now).into_iter().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), expected, "{what}");
        }
    }
}
