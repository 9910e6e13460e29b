//! A proxy in front of the API server that answers in its place, or changes something first.

use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use restow_lab::{Action, Cluster, Observer, Recorder, Seen};

/// A proxy between a client and its server.
pub(crate) struct Meddler {
    meddle: Box<dyn Fn(&Seen) -> Action + Send + Sync>,
}

impl Observer for Meddler {
    fn request(&self, request: &Seen) -> Action {
        (self.meddle)(request)
    }
}

/// A client that reaches the server through a meddler.
pub(crate) async fn through(
    cluster: &Cluster,
    meddle: impl Fn(&Seen) -> Action + Send + Sync + 'static,
) -> (Client, Recorder) {
    let meddler = Arc::new(Meddler { meddle: Box::new(meddle) });
    let recorder = Recorder::start(cluster, 0, "admin", meddler).await.unwrap();
    (client_from(recorder.kubeconfig()).await, recorder)
}

/// Runs something just before the first request of this method to StorageVersions arrives.
pub(crate) fn before_first(
    method: Method,
    happening: impl Future<Output = ()> + Send + 'static,
) -> impl Fn(&Seen) -> Action + Send + Sync + 'static {
    let happening: Mutex<Option<BoxFuture<'static, ()>>> = Mutex::new(Some(Box::pin(happening)));
    move |request| {
        if request.method != method || !request.path.contains("/storageversions/") {
            return Action::Forward;
        }
        happening.lock().unwrap().take().map_or(Action::Forward, Action::Wait)
    }
}

/// Whether a request reads identity Leases.
pub(crate) fn reads_leases(request: &Seen) -> bool {
    request.method == Method::GET && request.path.ends_with("/leases")
}

/// A client from a kubeconfig, without retries.
async fn client_from(path: &Path) -> Client {
    let file = Kubeconfig::read_from(path).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}
