//! Whether a server may be sent requests: only when it is registered and lets writes in.

use crate::gate::Gate;

/// Tells whether a server is ready; clones tell the same.
#[derive(Clone, Debug)]
pub struct Readiness {
    gate: Gate,
}

/// Why a server is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// It has not registered its storage versions.
    #[error("the storage versions are not registered yet")]
    Unregistered,
    /// It had, and was silent for so long that others may take it for gone.
    #[error("the identity Lease was lost, and the storage versions are to be registered again")]
    Lapsed,
}

impl Readiness {
    pub(crate) fn new(gate: Gate) -> Self {
        Self { gate }
    }

    /// Whether it is ready, or why not.
    pub fn check(&self) -> Result<(), NotReady> {
        if self.gate.is_open() {
            Ok(())
        } else if self.gate.has_lapsed() {
            Err(NotReady::Lapsed)
        } else {
            Err(NotReady::Unregistered)
        }
    }

    /// Ends when it is ready.
    pub async fn ready(&self) {
        self.gate.opened().await;
    }
}
