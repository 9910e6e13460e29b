//! Real clusters, and waiting for what happens on them.

use std::sync::OnceLock;
use std::time::Duration;

use restow_lab::{Cluster, ClusterSpec, assets};
use tokio::time::Instant;

/// One stock cluster for all tests that change nothing but objects of their own; none where there is no lab.
pub(crate) fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    let start = || {
        let assets = assets::or_skip("the controllers' tests on the shared cluster")?;
        // A thread of its own, because the caller's runtime must not wait for another one.
        let start = move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let cluster =
                runtime.block_on(Cluster::start(&assets, ClusterSpec::new())).expect("the shared cluster");
            // Its background work goes on as long as the test process.
            std::mem::forget(runtime);
            cluster
        };
        Some(std::thread::spawn(start).join().expect("the shared cluster"))
    };
    SHARED.get_or_init(start).as_ref()
}

/// Waits for something to become true, with a deadline; asks, never just sleeps and hopes.
pub(crate) async fn wait<F: Future<Output = bool>>(what: &str, mut is_true: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_true().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
