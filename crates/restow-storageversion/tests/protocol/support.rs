//! A real cluster that serves StorageVersions, test servers in it, and waiting for conditions.

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

/// The cluster that tests share if each uses its own group; `None` without the lab's programs.
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

/// Waits for a bounded time until something is true.
pub(crate) async fn wait<F: Future<Output = bool>>(what: &str, is_true: impl FnMut() -> F) {
    suite::wait(Duration::from_secs(60), what, is_true).await;
}

/// A stop that never stops.
pub(crate) fn never() -> Stop {
    CancellationToken::new().into()
}

/// The widgets of a test's own group.
pub(crate) fn widgets(group: &str) -> GroupResource {
    GroupResource::new(group, "widgets")
}

/// Versions with this encoding version; v1 and v2 are decodable.
pub(crate) fn versions(group: &str, encoding: &str) -> Versions {
    let both = ["v1", "v2"].map(|version| GroupVersion::new(group, version));
    Versions::new(&GroupVersion::new(group, encoding), &both, &both).unwrap()
}

/// A test server that has become a member.
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
        // Its next process takes over at once, and it does not have to renew during a test.
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

    /// Leaves: deletes its Lease.
    pub(crate) async fn leave(self) {
        self.identity.leave(&self.tenure).await;
        assert!(leases(&self.client).get_opt(&self.identity.id).await.unwrap().is_none());
    }
}

pub(crate) fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "kube-system")
}

/// Deletes the Lease of a running server.
pub(crate) async fn delete_lease(client: &Client, id: &str) {
    leases(client).delete(id, &DeleteParams::default()).await.unwrap();
}

/// The status of the StorageVersion of a group's widgets, if there is one.
pub(crate) async fn status(client: &Client, group: &str) -> Option<StorageVersionStatus> {
    let api = Api::<StorageVersion>::all(client.clone());
    api.get_opt(&storage_version::name(&widgets(group))).await.unwrap().map(|object| object.status.unwrap())
}

/// The entries as `a=v1 b=v2`, and the common version after a colon; `-` if there is no object.
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
