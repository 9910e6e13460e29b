//! The health of the store, as last checked.

use std::time::Duration;

use restow_clock::Instant;
use restow_store::Store;
use tokio::sync::Mutex;

/// The timeout of a check.
const STORE: Duration = Duration::from_secs(2);

/// How long a result is reused: unauthenticated users may ask as often as they like.
const FRESH: Duration = Duration::from_secs(1);

/// The last check of the store. Only one request at a time checks it.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth(Mutex<Option<(Instant, Result<(), String>)>>);

impl StoreHealth {
    /// Checks the store, unless the last check is recent.
    pub(crate) async fn check(&self, store: &dyn Store) -> Result<(), String> {
        let mut last = self.0.lock().await;
        if let Some((at, said)) = &*last
            && at.elapsed() < FRESH
        {
            return said.clone();
        }
        let said = match tokio::time::timeout(STORE, store.check()).await {
            Ok(Ok(())) => Ok(()),
            // The error may contain addresses and paths.
            Ok(Err(error)) => {
                tracing::warn!("the store is not healthy: {error}");
                Err("reason withheld; it is in the server's log".to_owned())
            }
            Err(_) => Err(format!("no answer within {STORE:?}")),
        };
        *last = Some((Instant::now(), said.clone()));
        said
    }
}
