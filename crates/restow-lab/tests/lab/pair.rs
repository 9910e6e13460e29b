//! Two servers of different versions on one store.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion;
use kube::{Api, Client};
use restow_lab::{Cluster, ClusterSpec, Part, ServerSpec, assets};

/// What each server says it stores device classes in, as (identity, version).
async fn encodings(client: &Client) -> BTreeSet<(String, String)> {
    let versions: Api<StorageVersion> = Api::all(client.clone());
    let Ok(found) = versions.get("resource.k8s.io.deviceclasses").await else { return BTreeSet::new() };
    let servers = found.status.and_then(|status| status.storage_versions).unwrap_or_default();
    servers.into_iter().map(|server| (server.api_server_id, server.encoding_version)).collect()
}

/// Waits until the servers say this; they publish it a moment after they are ready.
async fn wait_for(client: &Client, wanted: &[&str]) -> BTreeSet<(String, String)> {
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        seen = encodings(client).await;
        let mut versions: Vec<_> = seen.iter().map(|(_, version)| version.as_str()).collect();
        versions.sort_unstable();
        if versions == wanted {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{seen:?} instead of {wanted:?}")
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_two_versions_disagree_until_the_second_is_upgraded() {
    let Some(assets) = assets::or_skip("servers_of_two_versions_disagree") else { return };
    let spec = ClusterSpec::new()
        .server(1, ServerSpec::new().emulated_version("1.34"))
        .storage_version_api()
        .built_in_migrator();
    let cluster = Cluster::start(&assets, spec).await.unwrap();
    let client = cluster.client(0).unwrap();

    let seen = wait_for(&client, &["resource.k8s.io/v1", "resource.k8s.io/v1beta2"]).await;
    let identities: BTreeSet<_> = seen.iter().map(|(identity, _)| identity).collect();
    assert_eq!(identities.len(), 2, "{seen:?}");

    let upgrade = cluster.restart_with(Part::ApiServer(1), |flags| {
        flags.remove("emulated-version");
    });
    upgrade.await.unwrap();
    wait_for(&client, &["resource.k8s.io/v1", "resource.k8s.io/v1"]).await;

    assert!(cluster.memory(Part::ControllerManager).unwrap().peak > 20 << 20);
}
