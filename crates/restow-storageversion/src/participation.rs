//! A server's whole life as a member: identity, registration, open gate; and again after it was lost.

use std::time::Duration;

use kube::Client;
use restow_clock::Instant;
use restow_core::resource::name::GroupResource;
use restow_lease::Stop;
use tokio::time::{sleep_until, timeout_at};

use crate::gate::Gate;
use crate::registration::{Unregistered, drop_unhandled, register};
use restow_lease::identity::{Identity, Tenure};

/// How often what is registered is made sure of, lest somebody else has taken it away. Where it is as it was, the
/// write changes nothing.
const REFRESH: Duration = Duration::from_secs(600);

/// How long a server that leaves waits for what it is storing.
const DRAINED: Duration = Duration::from_secs(60);

/// What a server takes part with.
pub struct Participation {
    /// Who it is.
    pub identity: Identity,
    /// Reaches the StorageVersions.
    pub client: Client,
    /// Opens when all is registered.
    pub gate: Gate,
    /// Whether there are custom resources, registered under the same id. If not, entries of resources that are not
    /// behind the gate are of a former life, and are dropped.
    pub has_custom: bool,
}

impl Participation {
    /// Takes part until told to stop, and leaves when all that was being stored by then is stored.
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

    /// Gives the Lease up: whoever finds it gone relies on it that this server writes no more.
    async fn leave(&self, tenure: &Tenure) {
        match tokio::time::timeout(DRAINED, self.gate.drained()).await {
            Ok(()) => self.identity.leave(tenure).await,
            Err(_) => tracing::warn!(
                id = tenure.id(),
                "writes have not ended in {DRAINED:?}; the identity Lease is left to run out"
            ),
        }
    }

    /// Registers everything and opens the gate, and makes sure of it from time to time.
    async fn serve(&self, tenure: &Tenure, stop: &Stop) -> Unregistered {
        loop {
            // What cannot be done for so long does not keep the rest from being looked after.
            let next = Instant::now() + REFRESH;
            match timeout_at(next, self.look_after(tenure, stop)).await {
                Ok(Ok(())) => sleep_until(next).await,
                Ok(Err(error)) => return error,
                Err(_) => tracing::warn!(
                    id = tenure.id(),
                    "registration did not end in {REFRESH:?}; starting again"
                ),
            }
        }
    }

    /// Registers everything, opens the gate, and drops what a former life has registered.
    async fn look_after(&self, tenure: &Tenure, stop: &Stop) -> Result<(), Unregistered> {
        let registered = register(&self.client, tenure, self.gate.resources(), stop).await?;
        match self.gate.open(registered) {
            Ok(()) => tracing::info!(id = tenure.id(), "registered"),
            Err(uncovered) => tracing::error!("the gate stays shut: {uncovered}"),
        }
        if self.has_custom {
            return Ok(());
        }
        let handles = |name: &GroupResource| self.gate.resources().iter().any(|own| own.name == *name);
        drop_unhandled(&self.client, tenure, handles, stop).await
    }
}
