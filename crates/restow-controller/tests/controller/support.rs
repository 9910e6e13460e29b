//! One real cluster for all tests, and waiting on it.

use std::sync::OnceLock;
use std::time::Duration;

use restow_lab::{Cluster, ClusterSpec, suite};

/// The cluster that tests share if they change only their own objects; none on a machine without the lab's programs.
pub(crate) fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    SHARED
        .get_or_init(|| {
            suite::start_shared("the controllers' tests on the shared cluster", ClusterSpec::new())
        })
        .as_ref()
}

/// Waits up to a minute for something to become true.
pub(crate) async fn wait<F: Future<Output = bool>>(what: &str, is_true: impl FnMut() -> F) {
    suite::wait(Duration::from_secs(60), what, is_true).await;
}
