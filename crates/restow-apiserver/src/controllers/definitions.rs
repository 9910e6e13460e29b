//! Watches CustomResourceDefinitions and serves the resources they define.
//!
//! Each server does this on its own. A storage version changes in the order that `restow-storageversion` requires: stop
//! new writes, drain writes in flight, register the new version, check that the definition is unchanged, admit writes.

mod cleanup;
mod controller;
mod registered;
mod status;
mod stored;

use std::time::Duration;

use futures::StreamExt as _;
use restow_store::{Change, StoreError};
use tokio::time::MissedTickBehavior;

use crate::object::meta::is_deleting;

pub(crate) use controller::DefinitionController;
use stored::{PREFIX, name};

/// The pause after an error of the store, and the interval of checks of registrations.
const EVERY: Duration = Duration::from_secs(1);

/// Which keys a change is from.
enum WatchedPrefix {
    Definitions,
    Registered,
}

impl DefinitionController {
    /// Follows changes after a revision until the server stops.
    pub(crate) async fn run(mut self, mut after: u64) {
        let stop = self.stop.clone();
        let following = async {
            loop {
                let error = self.follow(after).await;
                tracing::warn!("the watch of CustomResourceDefinitions ended: {error}; listing them again");
                after = loop {
                    tokio::time::sleep(EVERY).await;
                    match self.load().await {
                        Ok(revision) => break revision,
                        Err(error) => {
                            tracing::warn!("could not list CustomResourceDefinitions: {error}; retrying")
                        }
                    }
                };
                // Registrations may have changed meanwhile: check them all.
                self.holder.clear();
            }
        };
        stop.unless(following).await;
    }

    async fn follow(&mut self, after: u64) -> StoreError {
        let mut changes = match self.api.store.watch(PREFIX, after).await {
            Ok(changes) => changes,
            Err(error) => return error,
        };
        // Another client may delete a registration of this server.
        let mut registered = match self.api.store.watch(registered::PREFIX, after).await {
            Ok(registered) => registered,
            Err(error) => return error,
        };
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let readiness = self.api.gate.readiness();
            let is_new = self.api.gate.tenure().is_none_or(|tenure| tenure.holder() != self.holder);
            let event = tokio::select! {
                biased;
                // First, because changes may come without pause.
                _ = tick.tick() => {
                    self.maintain().await;
                    continue;
                }
                // Writes of custom resources are admitted as soon as the server is a member.
                () = readiness.ready(), if is_new => {
                    self.maintain().await;
                    continue;
                }
                event = changes.next() => event.map(|event| (event, WatchedPrefix::Definitions)),
                event = registered.next() => event.map(|event| (event, WatchedPrefix::Registered)),
            };
            match event {
                Some((Ok(event), WatchedPrefix::Definitions)) => {
                    for Change { key, now, .. } in event.changes {
                        self.take(name(&key).to_owned(), now).await;
                    }
                }
                Some((Ok(event), WatchedPrefix::Registered)) => {
                    for Change { key, .. } in event.changes {
                        self.check(&key).await;
                    }
                }
                Some((Err(error), _)) => return error,
                None => return StoreError::Unavailable("the watch has ended".to_owned()),
            }
        }
    }

    /// Registers everything again after this server was taken for dead, and completes unfinished work.
    async fn maintain(&mut self) {
        let Some(tenure) = self.api.gate.tenure() else { return };
        let renewed = self.holder != tenure.holder();
        tenure.holder().clone_into(&mut self.holder);
        let names: Vec<String> = self.known.keys().cloned().collect();
        for name in names {
            let unfinished = self.known.get(&name).is_some_and(|known| {
                known.writer.write().is_none() || known.owes_status || is_deleting(&known.object)
            });
            if renewed || unfinished {
                let entry = self.api.entry(&format!("{PREFIX}{name}")).await;
                if let Ok(entry) = entry {
                    self.take(name, entry).await;
                }
            }
        }
        if renewed {
            self.check_all().await;
        }
    }
}
