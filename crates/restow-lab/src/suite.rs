//! What every suite of tests on a real cluster needs: one cluster to share, and waiting that ends.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::{Cluster, ClusterSpec, assets};

/// How often something that is waited for is asked.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Starts a cluster that outlives the test it is started in, for a suite to keep in a static; none where there is no lab.
pub fn start_shared(suite: &str, spec: ClusterSpec) -> Option<Cluster> {
    let assets = assets::or_skip(suite)?;
    Some(outlive(async move { Cluster::start(&assets, spec).await }))
}

/// The same with an embedded server, which can be started everywhere.
pub fn start_shared_embedded(program: &Path, spec: ClusterSpec) -> Cluster {
    let program = program.to_owned();
    outlive(async move { Cluster::start_embedded(&program, spec).await })
}

#[allow(clippy::expect_used)] // a suite whose cluster does not start has failed
fn outlive(start: impl Future<Output = Result<Cluster>> + Send + 'static) -> Cluster {
    // A thread of its own, because the caller's runtime must not wait for another one.
    let start = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime for the shared cluster");
        let cluster = runtime.block_on(start).expect("the shared cluster");
        // Its background work goes on as long as the test process.
        std::mem::forget(runtime);
        cluster
    };
    std::thread::spawn(start).join().expect("the shared cluster")
}

/// Asks until something is true; panics when the deadline has passed.
pub async fn wait<F: Future<Output = bool>>(within: Duration, what: &str, mut is_true: impl FnMut() -> F) {
    let deadline = Instant::now() + within;
    while !is_true().await {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        tokio::time::sleep(ASK_EVERY).await;
    }
}
