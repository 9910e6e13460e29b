//! Whether a server is ready: only when it is registered and its gate is open.

use crate::gate::Gate;

/// Reports whether a server is ready.
#[derive(Clone, Debug)]
pub struct Readiness {
    gate: Gate,
}

/// Why a server is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// Its storage versions are not registered yet.
    #[error("the storage versions are not registered yet")]
    Unregistered,
    /// It lost its identity Lease, so other servers may count it as gone.
    #[error("the identity Lease was lost; registering the storage versions again")]
    Lapsed,
}

impl Gate {
    /// Reports whether the server behind this gate is ready.
    pub fn readiness(&self) -> Readiness {
        Readiness { gate: self.clone() }
    }
}

impl Readiness {
    /// Returns the reason if it is not ready.
    pub fn check(&self) -> Result<(), NotReady> {
        if self.gate.is_open() {
            Ok(())
        } else if self.gate.has_lapsed() {
            Err(NotReady::Lapsed)
        } else {
            Err(NotReady::Unregistered)
        }
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        self.gate.opened().await;
    }
}
