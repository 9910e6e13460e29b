//! A real cluster that serves StorageVersions, servers of our own in it, and waiting for what happens.

use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::api::apiserverinternal::v1alpha1::{StorageVersion, StorageVersionStatus};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use kube::{Api, Client};
use restow_core::protocol::storage_version::{self, Versions};
use restow_core::resource::name::{GroupResource, GroupVersion};
use restow_lab::{Cluster, ClusterSpec, suite};
use restow_lease::Stop;
use restow_storageversion::{Identity, Registered, Resource, Tenure, register};
use tokio_util::sync::CancellationToken;

/// One cluster for all tests that keep to a group of their own; none where there is no lab.
pub(crate) fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    SHARED
        .get_or_init(|| {
            suite::start_shared(
                "the protocol's tests on the shared cluster",
                ClusterSpec::new().storage_version_api(),
            )
        })
        .as_ref()
}

/// Waits for something to become true, for so long and no longer.
pub(crate) async fn wait<F: Future<Output = bool>>(what: &str, is_true: impl FnMut() -> F) {
    suite::wait(Duration::from_secs(60), what, is_true).await;
}

/// One that never says so.
pub(crate) fn never() -> Stop {
    CancellationToken::new().into()
}

/// The widgets of a test's own group.
pub(crate) fn widgets(group: &str) -> GroupResource {
    GroupResource::new(group, "widgets")
}

/// Stored as `encoding`, with v1 and v2 to be read.
pub(crate) fn versions(group: &str, encoding: &str) -> Versions {
    let both = ["v1", "v2"].map(|version| GroupVersion::new(group, version));
    Versions::new(&GroupVersion::new(group, encoding), &both, &both).unwrap()
}

/// A server of our own that has become a member.
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) identity: Identity,
    pub(crate) tenure: Tenure,
}

impl Server {
    /// Starts one; its id is made of the group and the name, so that no two tests share it.
    pub(crate) async fn start(client: Client, group: &str, name: &str) -> Self {
        Self::lasting(client, group, name, Duration::from_secs(3600)).await
    }

    /// Starts one whose Lease lasts this long.
    pub(crate) async fn lasting(client: Client, group: &str, name: &str, duration: Duration) -> Self {
        let id = format!("apiserver-{name}.{group}");
        let mut identity = Identity::new(client.clone(), "restow-test", &id);
        identity.duration = duration;
        // Its next life takes its place at once, and it need not renew while a test goes on.
        identity.instance = Some("test".to_owned());
        identity.silence = duration;
        identity.renew_every = Duration::from_millis(100);
        let tenure = identity.establish(&never()).await.unwrap();
        Self { client, identity, tenure }
    }

    /// Registers the widgets of a group.
    pub(crate) async fn register(&self, group: &str, encoding: &str) -> Registered {
        let resource = Resource { name: widgets(group), versions: versions(group, encoding) };
        let (resources, never) = ([resource], never());
        let registering = register(&self.client, &self.tenure, &resources, &never);
        tokio::time::timeout(Duration::from_secs(60), registering).await.expect("an end").unwrap()
    }

    /// Is gone for good, as its Lease tells.
    pub(crate) async fn leave(self) {
        self.identity.leave(&self.tenure).await;
        assert!(leases(&self.client).get_opt(&self.identity.id).await.unwrap().is_none());
    }
}

pub(crate) fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "kube-system")
}

/// Takes a Lease away from under its server.
pub(crate) async fn delete_lease(client: &Client, id: &str) {
    leases(client).delete(id, &DeleteParams::default()).await.unwrap();
}

/// The status of the StorageVersion of a group's widgets, if there is one.
pub(crate) async fn status(client: &Client, group: &str) -> Option<StorageVersionStatus> {
    let api = Api::<StorageVersion>::all(client.clone());
    api.get_opt(&storage_version::name(&widgets(group))).await.unwrap().map(|object| object.status.unwrap())
}

/// What is registered, as `a=v1 b=v2`, and the common version after a colon; `-` where there is no object.
pub(crate) async fn registered(client: &Client, group: &str) -> String {
    let Some(status) = status(client, group).await else { return "-".to_owned() };
    let short = |version: &str| version.trim_start_matches(&format!("{group}/")).to_owned();
    let mut entries: Vec<String> = status
        .storage_versions
        .unwrap_or_default()
        .iter()
        .map(|entry| {
            let name = entry.api_server_id.trim_start_matches("apiserver-");
            let name = name.trim_end_matches(&format!(".{group}"));
            format!("{name}={}", short(&entry.encoding_version))
        })
        .collect();
    entries.sort();
    format!(
        "{}: {}",
        entries.join(" "),
        status.common_encoding_version.as_deref().map(short).unwrap_or_default()
    )
}
