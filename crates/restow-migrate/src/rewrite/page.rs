//! Writes each object of a page until it is decided.

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

use super::health::{Failures, Standing};
use super::rewriter::Rewriter;
use super::write::Sent;
use crate::client::Slot;
use crate::list::Item;
use crate::list::lookup::{self, Blind};
use restow_lease::Stop;

/// What became of a page.
#[derive(Debug, Default)]
pub struct Tally {
    /// The counts.
    pub counts: Counts,
    /// The objects that were left.
    pub quarantined: Vec<Quarantined>,
    /// The objects that were refused, for so short a time that it may pass; they are not counted yet.
    pub refused: Vec<Item>,
    /// The objects that are gone or were changed, as a look-up of their names shows.
    pub(crate) elsewhere: Vec<(Item, Outcome)>,
    /// Whether restow itself may have written one of those: the answer to a try was lost.
    pub(crate) answer_lost: bool,
}

/// How often objects have been tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Never, in this pass: a refusal may pass.
    First,
    /// They were refused long enough ago: a refusal is final.
    Last,
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
    #[error("objects cannot be written now, among them {0}")]
    Unavailable(String),
    /// The resource is no longer served.
    #[error("{0} is no longer served")]
    Vanished(GroupResource),
}

/// A page that was not finished.
#[derive(Debug)]
pub struct CutShort {
    /// Why.
    pub why: Unfinished,
    /// What became of its first objects, up to the first one that was not written.
    pub done: Counts,
    /// How many objects were rewritten behind those.
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
        /// Whether a try before may have been carried out.
        answer_lost: bool,
    },
    /// It was to stop.
    Stopped,
    /// Nor can any other be written.
    Unfinished(Unfinished),
}

impl Rewriter<'_> {
    /// Writes every object of a page; told to stop, it waits for those under way and sends no more.
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
            // Expired credentials are not tried on everything; those under way find out whether they are renewed.
            let locked_out = !under_way.is_empty() && self.health.is_locked_out();
            let halted = stop.is_stopped() || locked_out;
            tokio::select! {
                biased;
                slot = self.slot(), if next.is_some() && !halted => {
                    // The place may have been long in coming.
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
            let sent = self.careful(item, self.manner.dry_run).await.unwrap_or_else(Sent::broken);
            if sent.accepted {
                self.health.accepted(began);
            }
            let overloaded = matches!(sent.outcome, Outcome::Retry { overloaded: true, .. });
            slot.ended(if overloaded { Signal::Overloaded } else { Signal::Fine }, sent.bytes);
            if stop.is_stopped() && is_written(&sent.outcome) {
                // It counts, although the run is to stop.
                return End::Decided { outcome: sent.outcome, answer_lost };
            }
            // Boxed, because it is rarely needed and every write under way would hold its space.
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
                    failures.otherwise(Box::pin(self.otherwise(item, blame, last)).await);
                }
                self.slot().await
            };
            match stop.unless(ready).await {
                Some(next) => slot = next,
                None => return End::Stopped,
            }
        }
    }

    /// What an outcome comes to once the object itself was looked up, where that is needed, and whether its resource
    /// is served. A look-up that fails is repeated: lists that fail for a while are not the object's fault.
    async fn found_out(&self, item: &Item, outcome: Outcome) -> (Outcome, bool) {
        let Outcome::Doubtful(doubt) = outcome else { return (outcome, true) };
        let (since, mut tries) = (Instant::now(), 0);
        loop {
            let (sighting, served) = self.sight(item).await;
            let LookupResult::Unknown { message } = &sighting else {
                return (resolve(doubt, sighting), served);
            };
            if !served || since.elapsed() >= transient::TRANSIENT_ANSWER_TIMEOUT {
                return (resolve(doubt, sighting), served);
            }
            tries += 1;
            let wait = backoff(tries, None);
            self.waiting.waiting(&format!("{} cannot be looked up: {message}", item.key()), wait);
            tokio::time::sleep(wait).await;
        }
    }

    /// Looks an object up once, and tells whether its resource is served.
    async fn sight(&self, item: &Item) -> (LookupResult, bool) {
        match lookup::sight(self.server, self.target, item).await {
            Ok(sighting) => (sighting, true),
            Err(Blind::Failed(message)) => (LookupResult::Unknown { message }, true),
            Err(Blind::NotServed(message)) => (LookupResult::Unknown { message }, false),
        }
    }

    /// What is to be said of the server otherwise, where storing may be what fails: the server would take this object,
    /// and none was stored since.
    async fn otherwise(&self, item: &Item, blame: Blame, since: Instant) -> Standing {
        let standing = self.standing(item, blame, since).await;
        let stores = blame != Blame::Object || self.manner.dry_run || self.health.has_stored_since(since);
        if standing != Standing::Well || stores {
            return standing;
        }
        let slot = self.slot().await;
        let sent = self.careful(item, true).await.unwrap_or_else(Sent::broken);
        slot.ended(Signal::Fine, sent.bytes);
        if sent.outcome == Outcome::Accepted { Standing::Unstored } else { standing }
    }

    /// What is to be said of the server otherwise: other writes have shown it since then, or one that is sent for that
    /// does.
    async fn standing(&self, item: &Item, blame: Blame, since: Instant) -> Standing {
        let well = || if self.health.is_well_since(since) { Standing::Well } else { Standing::Unwell };
        if self.health.is_well_since(since) {
            return Standing::Well;
        }
        let _one_at_a_time = match self.health.asking.try_lock() {
            Ok(guard) => guard,
            // A server that hangs is not to hold up the others, which find out by themselves when it is back.
            Err(_) if blame == Blame::Server => return Standing::Unwell,
            Err(_) => self.health.asking.lock().await,
        };
        if self.health.is_well_since(since) || self.health.is_unwell() {
            return well();
        }
        let slot = self.slot().await;
        let began = Instant::now();
        if blame == Blame::Credentials && !self.health.has_written() {
            // Whoever may list is known to the server, so that a 401 is about the write.
            let listed = lookup::count(self.server, self.target).await.is_ok();
            if listed {
                self.health.accepted(began);
            }
            return if listed { Standing::Well } else { Standing::Unwell };
        }
        let (witness, sent) = match self.ask_witness(item, blame).await {
            Ok(Some(answered)) => answered,
            Ok(None) => return Standing::Alone,
            Err(Unasked) => return Standing::Unwell,
        };
        slot.ended(Signal::Fine, sent.bytes);
        if sent.accepted {
            self.health.accepted(began);
        }
        let outcome = match sent.outcome {
            Outcome::Doubtful(doubt) => resolve(doubt, self.sight(&witness).await.0),
            outcome => outcome,
        };
        self.health.asked(&outcome, began);
        // It is listed, and no write reaches it, so there is none that could be written.
        if outcome == Outcome::Gone { Standing::Alone } else { well() }
    }

    /// Sends a dry run of another object, which needs all that the write of this one needs; none where there is no
    /// other object.
    ///
    /// A conversion webhook that is down makes an API server answer with 500. For any other failure it does not matter
    /// whether the other object needs one.
    async fn ask_witness(&self, item: &Item, blame: Blame) -> Result<Option<(Item, Sent)>, Unasked> {
        let other = |witness: &Item| witness.uid != item.uid;
        let mut witness = self.health.witness().filter(other);
        if witness.is_none() {
            if let Some(stored) = self.health.stored().filter(other)
                && let Some(sent) = self.converts(&stored).await
            {
                return Ok(Some((stored, sent)));
            }
            let others = self.health.besides(item);
            let another = lookup::another(self.server, self.target, &others).await.map_err(|_| Unasked)?;
            let Some(another) = another else { return Ok(None) };
            let is_fit =
                |another: &Item| blame != Blame::Object || self.helper(another) != WebhookUse::Perhaps;
            witness = Some(another).filter(is_fit);
        }
        let witness = witness.ok_or(Unasked)?;
        let sent = self.careful(&witness, true).await.unwrap_or_else(Sent::broken);
        Ok(Some((witness, sent)))
    }
}

/// There is no object that shows whether the server is well, or none could be found.
struct Unasked;

impl Tally {
    fn take(&mut self, item: &Item, outcome: Outcome, answer_lost: bool) {
        self.counts.count(&outcome);
        match outcome {
            Outcome::Gone | Outcome::Conflicted => {
                self.answer_lost |= answer_lost;
                let item = Item { stale_fields: None, ..item.clone() };
                self.elsewhere.push((item, outcome));
            }
            outcome => self.quarantined.extend(quarantined(item, outcome)),
        }
    }
}

/// Whether the server took the write.
fn is_written(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Rewritten | Outcome::Current | Outcome::Accepted)
}

/// An object that is left, if that is its outcome.
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
    fn a_page_that_is_cut_short_counts_up_to_the_first_object_that_was_not_written() {
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
