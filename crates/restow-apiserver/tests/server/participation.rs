//! Another server takes part in the StorageVersion protocol on the embedded server, in simulated time.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion;
use kube::client::Body;
use kube::{Api, Client};
use restow_core::protocol::storage_version::Versions;
use restow_core::resource::inventory::Origin;
use restow_core::resource::name::{GroupResource, GroupVersion};
use restow_storageversion::{Gate, Identity, Participation, Resource};
use tokio_util::sync::CancellationToken;

const LIST: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const NAME: &str = "other.example.widgets";

/// A client that may not list StorageVersions.
fn without_list(inner: Client) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move {
            if request.method() == Method::GET && request.uri().path() == LIST {
                let mut forbidden = Response::new(Body::from(b"{}".to_vec()));
                *forbidden.status_mut() = StatusCode::FORBIDDEN;
                return Ok(forbidden);
            }
            inner.send(request).await
        }
    });
    Client::new(service, "default")
}

/// A server that may not list StorageVersions still keeps its own registrations.
#[tokio::test(start_paused = true)]
async fn registrations_are_kept_even_if_storage_versions_cannot_be_listed() {
    let server = crate::basics::server().await;
    let version = GroupVersion::new("other.example", "v1");
    let versions = Versions::new(&version, std::slice::from_ref(&version), std::slice::from_ref(&version));
    let name = GroupResource::new("other.example", "widgets");
    let gate = Gate::closed(vec![Resource { name, versions: versions.unwrap() }], |_| Origin::BuiltIn);
    let participation = Participation {
        identity: Identity::new(server.client(), "restow-test", "apiserver-other"),
        client: without_list(server.client()),
        gate: gate.clone(),
        has_custom: false,
    };
    let cancel = CancellationToken::new();
    let stop = cancel.clone().into();
    let life = tokio::spawn(async move { participation.run(&stop).await });
    gate.readiness().ready().await;
    let objects = Api::<StorageVersion>::all(server.client());
    objects.delete(NAME, &Default::default()).await.unwrap();
    let again = async {
        while objects.get_opt(NAME).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1500), again).await.expect("it is registered again");
    cancel.cancel();
    life.await.unwrap().unwrap();
    server.stop().await;
}
