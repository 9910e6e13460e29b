//! Controllers of the server itself: they give namespaces a default ServiceAccount and empty them, delete owned objects
//! with their owners, and expire Events.
//!
//! Each server runs all of it. No leader is elected: every write is conditioned on the uid and resourceVersion of what
//! was decided on, so that two servers can do the same and the slower one changes nothing. That spares a Lease that is
//! written all the time, and the wait for it to run out.

mod accounts;
pub(crate) mod definitions;
mod events;
mod garbage;
mod namespaces;
mod place;
mod writer;

use std::sync::Arc;

use restow_lease::Stop;
use tokio::task::JoinHandle;

use crate::verbs::api::Api;
use writer::Writer;

/// Starts all controllers. They end when the server stops.
pub(crate) fn start(api: &Arc<Api>, client: &kube::Client, stop: &Stop) -> Vec<JoinHandle<()>> {
    let writer = Writer::new(client.clone());
    vec![
        spawn(api, stop, accounts::run(Arc::clone(api), writer.clone())),
        spawn(api, stop, events::run(Arc::clone(api), writer.clone())),
        spawn(api, stop, garbage::run(Arc::clone(api), writer.clone())),
        spawn(api, stop, namespaces::run(Arc::clone(api), writer)),
    ]
}

/// Runs a controller once the server accepts writes.
fn spawn(api: &Arc<Api>, stop: &Stop, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let (ready, stop) = (api.gate.readiness(), stop.clone());
    tokio::spawn(async move {
        let work = async {
            ready.ready().await;
            work.await;
        };
        stop.unless(work).await;
    })
}
