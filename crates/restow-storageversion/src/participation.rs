//! Keeps a server registered: it acquires the identity, registers, opens the gate, and starts again if the Lease is lost.

use std::time::Duration;

use kube::Client;
use restow_clock::Instant;
use restow_core::resource::name::GroupResource;
use restow_lease::Stop;
use tokio::time::{sleep_until, timeout_at};

use crate::gate::Gate;
use crate::registration::{Unregistered, drop_unhandled, register};
use restow_lease::identity::{Identity, Tenure};

/// How often the registration is repeated, in case another client has removed it. If it is unchanged, the write changes
/// nothing.
const REFRESH: Duration = Duration::from_secs(600);

/// How long a server that stops waits for writes in flight.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// What a server needs to participate.
pub struct Participation {
    /// The server's identity.
    pub identity: Identity,
    /// The client for StorageVersions.
    pub client: Client,
    /// The gate that opens when everything is registered.
    pub gate: Gate,
    /// Whether custom resources are registered under the same id. If not, entries for resources that are not behind the gate
    /// are from an earlier process, and are removed.
    pub has_custom: bool,
}

impl Participation {
    /// Participates until it is told to stop. It deletes its Lease when all writes in flight are stored.
    pub async fn run(&self, stop: &Stop) -> Result<(), Unregistered> {
        let mut former = None;
        while let Some(tenure) = self.identity.establish_after(former.as_ref(), stop).await {
            let ended = tokio::select! {
                biased;
                () = self.identity.keep(&tenure, stop) => Ok(()),
                error = self.serve(&tenure, stop) => Err(error),
            };
            self.gate.close();
            if stop.is_stopped() || ended == Err(Unregistered::NotServed) {
                self.leave(&tenure).await;
                return ended.or_else(|error| match error {
                    Unregistered::NotServed => Err(error),
                    Unregistered::Stopped | Unregistered::TenureEnded | Unregistered::Redefined => Ok(()),
                });
            }
            former = Some(tenure);
        }
        Ok(())
    }

    /// Deletes the Lease. Other servers rely on it that a server without a Lease no longer writes.
    async fn leave(&self, tenure: &Tenure) {
        match tokio::time::timeout(DRAIN_TIMEOUT, self.gate.drained()).await {
            Ok(()) => self.identity.leave(tenure).await,
            Err(_) => tracing::warn!(
                id = tenure.id(),
                "writes did not end in {DRAIN_TIMEOUT:?}; leaving the identity Lease to expire"
            ),
        }
    }

    /// Registers everything and opens the gate, and repeats that periodically.
    async fn serve(&self, tenure: &Tenure, stop: &Stop) -> Unregistered {
        loop {
            // A step that takes too long must not block the others forever.
            let next = Instant::now() + REFRESH;
            match timeout_at(next, self.register_all(tenure, stop)).await {
                Ok(Ok(())) => sleep_until(next).await,
                Ok(Err(error)) => return error,
                Err(_) => tracing::warn!(
                    id = tenure.id(),
                    "registration did not end in {REFRESH:?}; starting again"
                ),
            }
        }
    }

    /// Registers everything, opens the gate, and removes entries of an earlier process.
    async fn register_all(&self, tenure: &Tenure, stop: &Stop) -> Result<(), Unregistered> {
        let registered = register(&self.client, tenure, self.gate.resources(), stop).await?;
        match self.gate.open(registered) {
            Ok(()) => tracing::info!(id = tenure.id(), "registered the storage versions"),
            Err(uncovered) => tracing::error!("the gate stays closed: {uncovered}"),
        }
        if self.has_custom {
            return Ok(());
        }
        let handles = |name: &GroupResource| self.gate.resources().iter().any(|own| own.name == *name);
        drop_unhandled(&self.client, tenure, handles, stop).await
    }
}
