//! Whether the store is healthy, as it was last checked.

use std::time::Duration;

use restow_clock::Instant;
use restow_store::Store;
use tokio::sync::Mutex;

/// How long the store may take to say how it is.
const STORE: Duration = Duration::from_secs(2);

/// For how long the store is not asked again: anybody may ask, as often as they like.
const FRESH: Duration = Duration::from_secs(1);

/// What the store has said of itself last; one request at a time asks it.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth(Mutex<Option<(Instant, Result<(), String>)>>);

impl StoreHealth {
    /// Checks the store, unless that was done just now.
    pub(crate) async fn look(&self, store: &dyn Store) -> Result<(), String> {
        let mut last = self.0.lock().await;
        if let Some((at, said)) = &*last
            && at.elapsed() < FRESH
        {
            return said.clone();
        }
        let said = match tokio::time::timeout(STORE, store.check()).await {
            Ok(Ok(())) => Ok(()),
            // Addresses and paths may be part of it.
            Ok(Err(error)) => {
                tracing::warn!("the store is not healthy: {error}");
                Err("reason withheld; it is in the server's log".to_owned())
            }
            Err(_) => Err(format!("no answer in {STORE:?}")),
        };
        *last = Some((Instant::now(), said.clone()));
        said
    }
}
