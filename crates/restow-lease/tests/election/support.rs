//! Real clusters, and waiting for what happens on them.

use std::sync::OnceLock;
use std::time::Duration;

use restow_lab::{Cluster, ClusterSpec, suite};

/// One stock cluster for all tests that change nothing but objects of their own; none where there is no lab.
pub(crate) fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    SHARED
        .get_or_init(|| {
            suite::start_shared("the controllers' tests on the shared cluster", ClusterSpec::new())
        })
        .as_ref()
}

/// Waits for something to become true, for so long and no longer.
pub(crate) async fn wait<F: Future<Output = bool>>(what: &str, is_true: impl FnMut() -> F) {
    suite::wait(Duration::from_secs(60), what, is_true).await;
}
