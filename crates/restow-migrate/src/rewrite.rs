//! Writes each object of a page until it is decided.

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use restow_clock::Instant;
use restow_core::outcome::{Helper, Outcome, Patience, backoff, give_up};
use restow_core::pace::Signal;
use restow_core::progress::{Counts, Quarantined};

use crate::health::{Failures, Health};
use crate::lookup;
use crate::pages::{Item, Target, Waiting};
use crate::server::Server;
use crate::stop::Stop;
use crate::throttle::{Slot, Throttle};
use crate::write::Sent;

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
    /// What the writes tell of the server.
    pub(crate) health: Health,
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
    /// Objects cannot be written now; no one of them is to blame for that.
    #[error("no object can be written: {0}")]
    Unavailable(String),
}

/// How the writing of one object ended.
enum End {
    Decided(Outcome),
    /// It was to stop.
    Stopped,
    /// The server's words, when it cannot write such objects now.
    Unavailable(String),
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
        let mut unfinished = None;
        let mut items = items.iter();
        let mut next = items.next();
        let (halt, stop) = stop.child();
        let mut under_way = FuturesUnordered::new();
        loop {
            let halted = stop.is_stopped();
            tokio::select! {
                slot = self.throttle.acquire(), if next.is_some() && !halted => {
                    // The place may have been long in coming.
                    if stop.is_stopped() {
                        continue;
                    }
                    if let Some(item) = next {
                        let stop = &stop;
                        under_way.push(async move { (item, self.one(item, slot, stop).await) });
                    }
                    next = items.next();
                }
                Some((item, end)) = under_way.next(), if !under_way.is_empty() => match end {
                    End::Decided(Outcome::Unauthorized { message }) => {
                        unfinished = Some(Unfinished::Unauthorized(message));
                        halt.cancel();
                    }
                    End::Decided(outcome) => {
                        decided(&outcome);
                        tally.take(item, outcome);
                    }
                    End::Stopped => {}
                    End::Unavailable(message) => {
                        unfinished = unfinished.or(Some(Unfinished::Unavailable(message)));
                        halt.cancel();
                    }
                },
                () = stop.stopped(), if next.is_some() && !halted => {}
                else => break,
            }
        }
        match unfinished {
            Some(unfinished) => Err(unfinished),
            None if tally.counts.done() < tally.counts.listed => Err(Unfinished::Stopped),
            None => Ok(tally),
        }
    }

    /// Writes one object until its outcome is decided.
    async fn one<'t>(&'t self, item: &Item, mut slot: Slot<'t>, stop: &Stop) -> End {
        let mut tries = 0;
        let mut failures = Failures::new(&self.health);
        loop {
            let began = Instant::now();
            let sent = self.careful(item, self.manner.dry_run).await.unwrap_or_else(Sent::broken);
            let Outcome::Again { after, bounded, overloaded, reason, message } = sent.outcome else {
                slot.ended(Signal::Fine, sent.bytes);
                self.health.saw(item, self.helper(item), &sent.outcome, sent.version.as_deref(), began);
                return End::Decided(sent.outcome);
            };
            slot.ended(if overloaded { Signal::Overloaded } else { Signal::Fine }, sent.bytes);
            tries += 1;
            if bounded {
                match failures.add(Instant::now(), self.target.conversion.is_some()) {
                    Patience::Again => {}
                    Patience::GiveUp => return End::Decided(give_up(reason, message)),
                    Patience::Later => return End::Unavailable(message),
                }
            }
            let wait = backoff(tries, after);
            self.waiting.waiting(if message.is_empty() { &reason } else { &message }, wait);
            let ready = async {
                tokio::time::sleep(wait).await;
                if let Some(last) = failures.last() {
                    failures.otherwise(self.is_well(item, last).await);
                }
                self.throttle.acquire().await
            };
            match stop.unless(ready).await {
                Some(next) => slot = next,
                None => return End::Stopped,
            }
        }
    }

    /// Whether the server is well otherwise: other writes have shown it since then, or one that is sent for that does.
    ///
    /// Where a webhook can only be needed to read an object, it is not to blame once that can be read.
    async fn is_well(&self, item: &Item, since: Instant) -> bool {
        if self.health.is_well_since(since) {
            return true;
        }
        if self.helper(item) == Helper::Perhaps && self.can_read(item).await {
            return true;
        }
        let _one_at_a_time = self.health.asking.lock().await;
        if self.health.is_well_since(since) || self.health.is_unwell() {
            return self.health.is_well_since(since);
        }
        let witness = match self.health.witness() {
            Some(witness) => witness,
            None => match lookup::first(self.server, self.target).await {
                Some(first) if self.helper(&first) != Helper::Perhaps => first,
                _ => return false,
            },
        };
        if witness.uid == item.uid {
            return false;
        }
        let slot = self.throttle.acquire().await;
        let began = Instant::now();
        let sent = self.careful(&witness, true).await.unwrap_or_else(Sent::broken);
        slot.ended(Signal::Fine, sent.bytes);
        self.health.asked(&sent.outcome, began);
        self.health.is_well_since(since)
    }
}

impl Tally {
    fn take(&mut self, item: &Item, outcome: Outcome) {
        self.counts.count(&outcome);
        if let Outcome::Quarantined { reason, message } = outcome {
            self.quarantined.push(Quarantined {
                namespace: item.namespace.to_string(),
                name: item.name.to_string(),
                uid: item.uid.to_string(),
                reason,
                message,
            });
        }
    }
}
