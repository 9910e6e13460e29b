//! A server's whole life as a member: identity, registration, open gate; and again after it was lost.

use std::time::Duration;

use kube::Client;
use restow_migrate::stop::Stop;

use crate::gate::Gate;
use crate::identity::{Identity, Tenure};
use crate::registration::{Unregistered, register};

/// How often what is registered is made sure of, lest somebody else has taken it away. Where it is as it was, the
/// write changes nothing.
const REFRESH: Duration = Duration::from_secs(600);

/// What a server takes part with.
pub struct Participation {
    /// Who it is.
    pub identity: Identity,
    /// Reaches the StorageVersions.
    pub client: Client,
    /// Opens when all is registered.
    pub gate: Gate,
}

impl Participation {
    /// Takes part until told to stop, and leaves then; stop it when no request is under way any more.
    pub async fn run(&self, stop: &Stop) -> Result<(), Unregistered> {
        while let Some(tenure) = self.identity.establish(stop).await {
            let ended = tokio::select! {
                biased;
                () = self.identity.keep(&tenure, stop) => Ok(()),
                error = self.serve(&tenure, stop) => Err(error),
            };
            self.gate.close();
            if stop.is_stopped() || ended == Err(Unregistered::NotServed) {
                self.identity.leave(&tenure).await;
                return ended.or_else(|error| match error {
                    Unregistered::NotServed => Err(error),
                    Unregistered::Stopped | Unregistered::TenureEnded | Unregistered::Redefined => Ok(()),
                });
            }
        }
        Ok(())
    }

    /// Registers everything and opens the gate, and makes sure of it from time to time.
    async fn serve(&self, tenure: &Tenure, stop: &Stop) -> Unregistered {
        loop {
            match register(&self.client, tenure, self.gate.resources(), stop).await {
                Err(error) => return error,
                Ok(registered) => match self.gate.open(registered) {
                    Ok(()) => tracing::info!(id = tenure.id(), "registered"),
                    Err(uncovered) => tracing::error!("the gate stays shut: {uncovered}"),
                },
            }
            tokio::time::sleep(REFRESH).await;
        }
    }
}
