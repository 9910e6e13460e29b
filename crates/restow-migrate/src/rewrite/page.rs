//! Writes each object of a page until its outcome is decided.

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use restow_clock::Instant;
use restow_core::agreement::transient;
use restow_core::resource::name::GroupResource;
use restow_core::rewrite::outcome::{
    Blame, LookupResult, Outcome, REFUSAL_TIMEOUT, RetryDecision, WebhookUse, backoff, give_up,
    quarantine_if_lasting, resolve, unsendable,
};
use restow_core::rewrite::pace::Signal;
use restow_core::rewrite::progress::{Counts, Quarantined};

use super::health::{Failures, ServerHealth};
use super::rewriter::Rewriter;
use super::write::Sent;
use crate::client::Slot;
use crate::list::Item;
use crate::list::lookup::{self, LookupError};
use restow_lease::Stop;

/// The result of writing a page.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of objects by outcome.
    pub counts: Counts,
    /// The quarantined objects.
    pub quarantined: Vec<Quarantined>,
    /// Objects that were refused for so short a time that it may pass. They are not counted yet.
    pub refused: Vec<Item>,
    /// Objects that a look-up by name shows as deleted or changed. A list has to confirm it.
    pub(crate) unconfirmed: Vec<(Item, Outcome)>,
    /// Whether restow itself may have changed one of those, because the answer to a write was lost.
    pub(crate) answer_lost: bool,
}

/// Which attempt at an object this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The first one in this pass: a refusal may pass.
    First,
    /// The last one: a refusal is final.
    Last,
}

/// Why a page was not finished.
#[derive(Debug, thiserror::Error)]
pub enum Unfinished {
    /// The run was told to stop.
    #[error("stopped")]
    Stopped,
    /// The credentials are no longer accepted.
    #[error("the credentials are no longer accepted: {0}")]
    Unauthorized(String),
    /// Objects cannot be written now. That is not the fault of one object.
    #[error("cannot write objects now, for example {0}")]
    Unavailable(String),
    /// The resource is no longer served.
    #[error("{0} is no longer served")]
    Vanished(GroupResource),
}

/// A page that was not finished.
#[derive(Debug)]
pub struct CutShort {
    /// The reason.
    pub why: Unfinished,
    /// The outcomes of its objects up to the first one that was not written.
    pub done: Counts,
    /// How many objects after those were rewritten.
    pub beyond: u64,
}

impl CutShort {
    /// Given which objects of a page were written, in order.
    fn new(why: Unfinished, written: &[Option<Outcome>]) -> Self {
        let mut done = Counts::default();
        for outcome in written.iter().map_while(Option::as_ref) {
            done.listed += 1;
            done.count(outcome);
        }
        let rewritten =
            written.iter().flatten().filter(|outcome| **outcome == Outcome::Rewritten).count() as u64;
        Self { why, beyond: rewritten - done.rewritten, done }
    }
}

/// How the writing of one object ended.
enum End {
    Decided {
        outcome: Outcome,
        /// Whether an earlier attempt may have been stored.
        answer_lost: bool,
    },
    /// The run was told to stop.
    Stopped,
    /// No other object can be written either.
    Unfinished(Unfinished),
}

impl Rewriter<'_> {
    /// Writes every object of a page. When it is told to stop, it waits for writes in flight and sends no more.
    pub async fn page(
        &self,
        items: &[Item],
        attempt: Attempt,
        stop: &Stop,
        mut decided: impl FnMut(&Outcome),
    ) -> Result<Tally, CutShort> {
        let mut written = vec![None; items.len()];
        let mut tally =
            Tally { counts: Counts { listed: items.len() as u64, ..Counts::default() }, ..Tally::default() };
        let mut unfinished = None;
        let mut items = items.iter().enumerate();
        let mut next = items.next();
        let (halt, stop) = stop.child();
        let mut under_way = FuturesUnordered::new();
        loop {
            // With refused credentials no further write is sent; those in flight show when they are renewed.
            let locked_out = !under_way.is_empty() && self.health.is_locked_out();
            let halted = stop.is_stopped() || locked_out;
            tokio::select! {
                biased;
                slot = self.slot(), if next.is_some() && !halted => {
                    // It may have taken long to get a slot.
                    if stop.is_stopped() || (!under_way.is_empty() && self.health.is_locked_out()) {
                        continue;
                    }
                    if let Some((place, item)) = next {
                        let stop = &stop;
                        under_way.push(async move { (place, item, self.one(item, attempt, slot, stop).await) });
                    }
                    next = items.next();
                }
                Some((place, item, end)) = under_way.next(), if !under_way.is_empty() => match end {
                    End::Decided { outcome: Outcome::Refused { .. }, .. } => tally.refused.push(item.clone()),
                    End::Decided { outcome, answer_lost } => {
                        decided(&outcome);
                        if is_written(&outcome) {
                            written[place] = Some(outcome.clone());
                        }
                        tally.take(item, outcome, answer_lost);
                    }
                    End::Stopped => {}
                    End::Unfinished(why) => {
                        unfinished = unfinished.or(Some(why));
                        halt.cancel();
                    }
                },
                () = stop.stopped(), if next.is_some() && !halted => {}
                else => break,
            }
        }
        match unfinished {
            Some(unfinished) => Err(CutShort::new(unfinished, &written)),
            None if tally.counts.done() + (tally.refused.len() as u64) < tally.counts.listed => {
                Err(CutShort::new(Unfinished::Stopped, &written))
            }
            None => Ok(tally),
        }
    }

    /// Waits until one more write may be sent.
    async fn slot(&self) -> Slot<'_> {
        loop {
            self.hold.released().await;
            let slot = self.throttle.acquire().await;
            if !self.hold.is_set() {
                return slot;
            }
        }
    }

    /// Writes one object until its outcome is decided.
    async fn one<'t>(&'t self, item: &Item, attempt: Attempt, mut slot: Slot<'t>, stop: &Stop) -> End {
        if let Some(left) = unsendable(item.identity(), &item.resource_version) {
            return End::Decided { outcome: left, answer_lost: false };
        }
        let (mut tries, mut unserved, mut answer_lost) = (0, None, false);
        let mut failures = Failures::new(&self.health);
        let refused_for = |failures: &Failures<'_>, sent: Instant| match attempt {
            Attempt::First => failures.lasted(sent),
            Attempt::Last => REFUSAL_TIMEOUT,
        };
        loop {
            let began = Instant::now();
            let sent = self.careful(item, self.write_options.dry_run).await.unwrap_or_else(Sent::broken);
            if sent.accepted {
                self.health.accepted(began);
            }
            let overloaded = matches!(sent.outcome, Outcome::Retry { overloaded: true, .. });
            slot.ended(if overloaded { Signal::Overloaded } else { Signal::Fine }, sent.bytes);
            if stop.is_stopped() && is_written(&sent.outcome) {
                // It was written, although the run is stopping.
                return End::Decided { outcome: sent.outcome, answer_lost };
            }
            // Boxed, because it is rarely needed and takes space for every write in flight.
            let settled = Box::pin(self.found_out(item, sent.outcome));
            let Some((outcome, served)) = stop.unless(settled).await else { return End::Stopped };
            unserved = if served { None } else { unserved.or(Some(began)) };
            if unserved.is_some_and(|since| since.elapsed() >= transient::TRANSIENT_ANSWER_TIMEOUT) {
                return End::Unfinished(Unfinished::Vanished(self.target.name.clone()));
            }
            let Outcome::Retry { after, blame, reason, message, .. } = outcome else {
                self.health.saw(item, self.helper(item), &outcome, sent.version.as_deref(), began);
                let outcome = quarantine_if_lasting(outcome, refused_for(&failures, began));
                return End::Decided { outcome, answer_lost };
            };
            tries += 1;
            answer_lost |= sent.hides_a_write;
            match failures.add(blame, Instant::now(), self.target.conversion.is_some()) {
                RetryDecision::Retry => {}
                RetryDecision::GiveUp => {
                    self.health.gave_up(item);
                    let outcome =
                        quarantine_if_lasting(give_up(reason, message), refused_for(&failures, began));
                    return End::Decided { outcome, answer_lost };
                }
                RetryDecision::Later => {
                    let message = format!("{}: {message}", item.key());
                    return End::Unfinished(Unfinished::Unavailable(message));
                }
                RetryDecision::Unauthorized => return End::Unfinished(Unfinished::Unauthorized(message)),
            }
            let wait = backoff(tries, after);
            self.waiting.waiting(&message, wait);
            let ready = async {
                tokio::time::sleep(wait).await;
                if let Some(last) = failures.last().filter(|_| blame != Blame::Refusal) {
                    failures.server_was(Box::pin(self.server_health(item, blame, last)).await);
                }
                self.slot().await
            };
            match stop.unless(ready).await {
                Some(next) => slot = next,
                None => return End::Stopped,
            }
        }
    }

    /// Looks up an object whose outcome is doubtful, and returns its real outcome and whether its resource is served. It
    /// retries the look-up, because failing lists are not the object's fault.
    async fn found_out(&self, item: &Item, outcome: Outcome) -> (Outcome, bool) {
        let Outcome::Doubtful(doubt) = outcome else { return (outcome, true) };
        let (since, mut tries) = (Instant::now(), 0);
        loop {
            let (found, served) = self.look_up(item).await;
            let LookupResult::Unknown { message } = &found else {
                return (resolve(doubt, found), served);
            };
            if !served || since.elapsed() >= transient::TRANSIENT_ANSWER_TIMEOUT {
                return (resolve(doubt, found), served);
            }
            tries += 1;
            let wait = backoff(tries, None);
            self.waiting.waiting(&format!("{} cannot be looked up: {message}", item.key()), wait);
            tokio::time::sleep(wait).await;
        }
    }

    /// Looks up an object once, and returns whether its resource is served.
    async fn look_up(&self, item: &Item) -> (LookupResult, bool) {
        match lookup::look_up(self.server, self.target, item).await {
            Ok(found) => (found, true),
            Err(LookupError::Failed(message)) => (LookupResult::Unknown { message }, true),
            Err(LookupError::NotServed(message)) => (LookupResult::Unknown { message }, false),
        }
    }

    /// The health of the server. It is `Unstored` if the server accepts a dry run of this object and has stored nothing since.
    async fn server_health(&self, item: &Item, blame: Blame, since: Instant) -> ServerHealth {
        let health = self.health_since(item, blame, since).await;
        let stores =
            blame != Blame::Object || self.write_options.dry_run || self.health.has_stored_since(since);
        if health != ServerHealth::Well || stores {
            return health;
        }
        let slot = self.slot().await;
        let sent = self.careful(item, true).await.unwrap_or_else(Sent::broken);
        slot.ended(Signal::Fine, sent.bytes);
        if sent.outcome == Outcome::Accepted { ServerHealth::Unstored } else { health }
    }

    /// The health of the server since a time, as other writes show. If there were none, it sends a witness.
    async fn health_since(&self, item: &Item, blame: Blame, since: Instant) -> ServerHealth {
        let well =
            || if self.health.is_well_since(since) { ServerHealth::Well } else { ServerHealth::Unwell };
        if self.health.is_well_since(since) {
            return ServerHealth::Well;
        }
        let _one_at_a_time = match self.health.asking.try_lock() {
            Ok(guard) => guard,
            // A server that hangs must not block the other objects.
            Err(_) if blame == Blame::Server => return ServerHealth::Unwell,
            Err(_) => self.health.asking.lock().await,
        };
        if self.health.is_well_since(since) || self.health.is_unwell() {
            return well();
        }
        let slot = self.slot().await;
        let began = Instant::now();
        if blame == Blame::Credentials && !self.health.has_written() {
            // A list shows that the credentials are accepted, so the 401 is about the write.
            let listed = lookup::count(self.server, self.target).await.is_ok();
            if listed {
                self.health.accepted(began);
            }
            return if listed { ServerHealth::Well } else { ServerHealth::Unwell };
        }
        let (witness, sent) = match self.ask_witness(item, blame).await {
            Ok(Some(answered)) => answered,
            Ok(None) => return ServerHealth::Alone,
            Err(NoWitness) => return ServerHealth::Unwell,
        };
        slot.ended(Signal::Fine, sent.bytes);
        if sent.accepted {
            self.health.accepted(began);
        }
        let outcome = match sent.outcome {
            Outcome::Doubtful(doubt) => resolve(doubt, self.look_up(&witness).await.0),
            outcome => outcome,
        };
        self.health.asked(&outcome, began);
        // The witness is listed, but no write reaches it, so it cannot be one.
        if outcome == Outcome::Gone { ServerHealth::Alone } else { well() }
    }

    /// Sends a dry run of another object, which needs all that a write of this one needs; `None` if there is no other
    /// object.
    ///
    /// If a conversion webhook is down, the API server answers with 500. For other failures it does not matter whether the
    /// other object needs the webhook.
    async fn ask_witness(&self, item: &Item, blame: Blame) -> Result<Option<(Item, Sent)>, NoWitness> {
        let other = |witness: &Item| witness.uid != item.uid;
        let mut witness = self.health.witness().filter(other);
        if witness.is_none() {
            if let Some(stored) = self.health.stored().filter(other)
                && let Some(sent) = self.converts(&stored).await
            {
                return Ok(Some((stored, sent)));
            }
            let others = self.health.besides(item);
            let another = lookup::another(self.server, self.target, &others).await.map_err(|_| NoWitness)?;
            let Some(another) = another else { return Ok(None) };
            let is_fit =
                |another: &Item| blame != Blame::Object || self.helper(another) != WebhookUse::Perhaps;
            witness = Some(another).filter(is_fit);
        }
        let witness = witness.ok_or(NoWitness)?;
        let sent = self.careful(&witness, true).await.unwrap_or_else(Sent::broken);
        Ok(Some((witness, sent)))
    }
}

/// No object that shows whether the server is healthy was found.
struct NoWitness;

impl Tally {
    fn take(&mut self, item: &Item, outcome: Outcome, answer_lost: bool) {
        self.counts.count(&outcome);
        match outcome {
            Outcome::Gone | Outcome::Conflicted => {
                self.answer_lost |= answer_lost;
                let item = Item { stale_fields: None, ..item.clone() };
                self.unconfirmed.push((item, outcome));
            }
            outcome => self.quarantined.extend(quarantined(item, outcome)),
        }
    }
}

/// Whether the server accepted the write.
fn is_written(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Rewritten | Outcome::Current | Outcome::Accepted)
}

/// The quarantined object, if that is its outcome.
pub(crate) fn quarantined(item: &Item, outcome: Outcome) -> Option<Quarantined> {
    let Outcome::Quarantined { reason, message } = outcome else { return None };
    Some(Quarantined {
        namespace: item.namespace.to_string(),
        name: item.name.to_string(),
        uid: item.uid.to_string(),
        reason,
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_cut_short_counts_objects_up_to_the_first_unwritten_one() {
        let (rewritten, current) = (Some(Outcome::Rewritten), Some(Outcome::Current));
        for (written, listed, counts, beyond) in [
            (vec![], 0, (0, 0), 0),
            (vec![None, rewritten.clone()], 0, (0, 0), 1),
            (vec![rewritten.clone(), current.clone(), rewritten.clone(), None], 3, (2, 1), 0),
            (
                vec![rewritten.clone(), None, rewritten.clone(), current.clone(), rewritten.clone()],
                1,
                (1, 0),
                2,
            ),
        ] {
            let cut = CutShort::new(Unfinished::Stopped, &written);
            let done = cut.done;
            assert_eq!((done.listed, (done.rewritten, done.current)), (listed, counts), "{written:?}");
            assert_eq!(cut.beyond, beyond, "{written:?}");
        }
    }
}
