//! Pauses writes while it is unknown whether the API servers still agree.

use tokio::sync::watch;

/// Whether writes are paused. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hold(watch::Sender<bool>);

impl Hold {
    /// Sends no further write until [`release`](Self::release).
    pub(crate) fn set(&self) {
        self.0.send_replace(true);
    }

    /// Lets writes through again.
    pub(crate) fn release(&self) {
        self.0.send_replace(false);
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until writes may be sent.
    pub(crate) async fn released(&self) {
        // This is the sender, so it is never closed.
        self.0.subscribe().wait_for(|held| !held).await.ok();
    }
}
