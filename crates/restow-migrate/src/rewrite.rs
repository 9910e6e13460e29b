//! Sends the no-op write of each object of a page.

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::Method;
use restow_core::managed_fields::{Care, care};
use restow_core::outcome::{Answer, Outcome, backoff, classify, give_up};
use restow_core::pace::Signal;
use restow_core::progress::{Counts, Quarantined};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::pages::{Item, Target, Waiting};
use crate::server::{METADATA, Reply, Server};
use crate::stop::Stop;
use crate::throttle::Throttle;
use crate::wire::{ManagedFieldsEntry, Object};

const MERGE_PATCH: &str = "application/merge-patch+json";

/// How often a write is tried whose error may be the object's own.
const TRIES: u32 = 5;

/// The write that changes nothing. Without the uid a deleted object could come back empty; without the
/// resourceVersion a user's write could be lost.
#[derive(Serialize)]
struct Patch<'a> {
    metadata: PatchMeta<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PatchMeta<'a> {
    uid: &'a str,
    resource_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    managed_fields: Option<&'a serde_json::Value>,
}

/// How objects are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Ask the server to do all but store.
    pub dry_run: bool,
    /// Move managedFields entries of versions that are no longer served to the version written through.
    pub repair_managed_fields: bool,
}

/// Writes objects of one resource.
pub struct Rewriter<'a> {
    /// Where to.
    pub server: &'a Server,
    /// What.
    pub target: &'a Target,
    /// How.
    pub manner: Manner,
    /// How fast.
    pub throttle: &'a Throttle,
    /// Whom to tell about waits.
    pub waiting: &'a (dyn Waiting + Sync),
}

/// What became of a page.
#[derive(Debug, Default)]
pub struct Tally {
    /// The counts.
    pub counts: Counts,
    /// The objects that were left.
    pub quarantined: Vec<Quarantined>,
}

/// Why a page was not finished.
#[derive(Debug, thiserror::Error)]
pub enum Unfinished {
    /// It was to stop.
    #[error("stopped")]
    Stopped,
    /// The credentials no longer hold.
    #[error("the credentials are no longer accepted: {0}")]
    Unauthorized(String),
}

impl Rewriter<'_> {
    /// Writes every object of a page; told to stop, it waits for those under way and sends no more.
    pub async fn page(
        &self,
        items: &[Item],
        stop: &Stop,
        mut decided: impl FnMut(&Outcome),
    ) -> Result<Tally, Unfinished> {
        let mut tally =
            Tally { counts: Counts { listed: items.len() as u64, ..Counts::default() }, ..Tally::default() };
        let mut unauthorized = None;
        let mut items = items.iter();
        let mut next = items.next();
        let mut under_way = FuturesUnordered::new();
        loop {
            let halted = stop.is_stopped() || unauthorized.is_some();
            tokio::select! {
                slot = self.throttle.acquire(), if next.is_some() && !halted => {
                    // The place may have been long in coming.
                    if stop.is_stopped() {
                        continue;
                    }
                    if let Some(item) = next {
                        under_way.push(async move { (item, self.one(item, slot, stop).await) });
                    }
                    next = items.next();
                }
                Some((item, outcome)) = under_way.next(), if !under_way.is_empty() => {
                    decided(&outcome);
                    tally.counts.count(&outcome);
                    match outcome {
                        Outcome::Quarantined { reason, message } => tally.quarantined.push(Quarantined {
                            namespace: item.namespace.to_string(),
                            name: item.name.to_string(),
                            uid: item.uid.to_string(),
                            reason,
                            message,
                        }),
                        Outcome::Unauthorized { message } => unauthorized = Some(message),
                        _ => {}
                    }
                }
                () = stop.stopped(), if next.is_some() && !halted => {}
                else => break,
            }
        }
        match unauthorized {
            Some(message) => Err(Unfinished::Unauthorized(message)),
            None if tally.counts.done() < tally.counts.listed => Err(Unfinished::Stopped),
            None => Ok(tally),
        }
    }

    /// Writes one object until its outcome is decided; undecided only when told to stop.
    async fn one<'t>(&'t self, item: &Item, mut slot: crate::throttle::Slot<'t>, stop: &Stop) -> Outcome {
        let mut tries = 0;
        loop {
            let (outcome, bytes) = match self.careful(item).await {
                Ok(done) => done,
                Err(broken) => (classify(&Answer::Broken { message: broken.to_string() }), 0),
            };
            let Outcome::Again { after, bounded, overloaded, reason, message } = outcome else {
                slot.ended(Signal::Fine, bytes);
                return outcome;
            };
            slot.ended(if overloaded { Signal::Overloaded } else { Signal::Fine }, bytes);
            tries += 1;
            if bounded && tries >= TRIES {
                return give_up(reason, message);
            }
            let wait = backoff(tries, after);
            self.waiting.waiting(if message.is_empty() { &reason } else { &message }, wait);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.stopped() => {
                    return Outcome::Again { after, bounded, overloaded, reason, message };
                }
            }
            slot = self.throttle.acquire().await;
        }
    }

    /// Writes one object once; one whose managedFields a write may wipe is first sent as a dry run, or repaired.
    async fn careful(&self, item: &Item) -> Result<(Outcome, usize), crate::server::Broken> {
        let Some(fields) = &item.stale_fields else {
            return self
                .send(item, None, self.manner.dry_run)
                .await
                .map(|(outcome, bytes, _)| (outcome, bytes));
        };
        if self.manner.repair_managed_fields {
            let moved = self.moved(fields);
            let sent = self.send(item, Some(&moved), self.manner.dry_run).await;
            return sent.map(|(outcome, bytes, _)| (outcome, bytes));
        }
        let (outcome, bytes, kept) = self.send(item, None, true).await?;
        if outcome != Outcome::Accepted {
            return Ok((outcome, bytes));
        }
        match care(entries(fields.get()), kept) {
            Care::Send if self.manner.dry_run => Ok((outcome, bytes)),
            Care::Send => {
                self.send(item, None, false).await.map(|(outcome, more, _)| (outcome, bytes + more))
            }
            Care::Quarantine => {
                let message = "its managedFields hold entries of a version that the server no longer knows, and any \
                               write would wipe them all; --repair-managed-fields moves them to the storage version"
                    .to_owned();
                Ok((Outcome::Quarantined { reason: "StaleManagedFields".to_owned(), message }, bytes))
            }
        }
    }

    /// Sends the patch; besides the outcome and the bytes it says how many managedFields entries came back.
    async fn send(
        &self,
        item: &Item,
        fields: Option<&serde_json::Value>,
        dry_run: bool,
    ) -> Result<(Outcome, usize, usize), crate::server::Broken> {
        let mut path = self.target.object_path(&item.namespace, &item.name);
        if dry_run {
            path.push_str("?dryRun=All");
        }
        let patch = Patch {
            metadata: PatchMeta {
                uid: &item.uid,
                resource_version: &item.resource_version,
                managed_fields: fields,
            },
        };
        let body = bytes::Bytes::from(serde_json::to_vec(&patch).unwrap_or_default());
        let sent = body.len();
        let reply = self.server.send(Method::PATCH, &path, METADATA, Some((MERGE_PATCH, body))).await?;
        let bytes = sent + reply.body.len();
        let (returned, kept) = returned(&reply);
        let outcome = classify(&reply.answer(&item.resource_version, returned));
        let outcome = match outcome {
            Outcome::Rewritten | Outcome::Current if dry_run => Outcome::Accepted,
            other => other,
        };
        Ok((outcome, bytes, kept))
    }

    /// The entries, those of versions that do not stay moved to the version that is written through.
    fn moved(&self, fields: &RawValue) -> serde_json::Value {
        let mut entries: Vec<serde_json::Value> = serde_json::from_str(fields.get()).unwrap_or_default();
        for entry in &mut entries {
            let goes = entry["apiVersion"].as_str().is_some_and(|version| self.target.versions.goes(version));
            if goes {
                entry["apiVersion"] = self.target.version.to_string().into();
            }
        }
        entries.into()
    }
}

/// The resourceVersion of a successful answer, and how many managedFields entries it has.
fn returned(reply: &Reply) -> (Option<String>, usize) {
    if reply.code >= 300 {
        return (None, 0);
    }
    match serde_json::from_slice::<Object<'_>>(&reply.body) {
        Ok(object) if !object.metadata.resource_version.is_empty() => (
            Some(object.metadata.resource_version.into_owned()),
            object.metadata.managed_fields.map_or(0, |fields| entries(fields.get())),
        ),
        _ => (None, 0),
    }
}

fn entries(fields: &str) -> usize {
    serde_json::from_str::<Vec<ManagedFieldsEntry<'_>>>(fields).map_or(0, |entries| entries.len())
}
