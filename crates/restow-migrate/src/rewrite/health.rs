//! Whether the server is healthy while some objects fail, as other writes show.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use restow_clock::Instant;
use restow_core::rewrite::outcome::{
    Blame, FailureHistory, Outcome, RetryDecision, WebhookUse, retry_decision, shows_health,
};

use crate::list::Item;

/// How long a server counts as unhealthy after a witness failed.
const UNWELL_FOR: Duration = Duration::from_secs(1);
/// How many objects that were given up are remembered.
const MAX_GIVEN_UP: usize = 100;

/// What all writes of a pass show about their server.
#[derive(Default)]
pub(crate) struct Health {
    state: Mutex<State>,
    /// Held while a witness is sent, so that only one is in flight.
    pub(crate) asking: tokio::sync::Mutex<()>,
    /// Whether the server is assumed to be healthy.
    assumed: bool,
}

#[derive(Default)]
struct State {
    /// When the last successful write was sent.
    well: Option<Instant>,
    /// When the last write was sent that was stored.
    stored_at: Option<Instant>,
    /// When a witness last failed.
    unwell: Option<Instant>,
    /// When the credentials were last refused.
    refused: Option<Instant>,
    /// When the last request was sent whose answer shows that the credentials are accepted.
    accepted: Option<Instant>,
    /// An object that can be written, in its latest state.
    witness: Option<Item>,
    /// An object that is stored in the storage version, in its latest state.
    stored: Option<Item>,
    /// How many objects have failed and have no outcome yet.
    failing: usize,
    /// The uids of objects whose failures are their own fault: they show nothing about the server.
    given_up: Vec<Box<str>>,
}

impl Health {
    /// Assumes a healthy server, for objects that were given up before.
    pub(crate) fn assumed() -> Self {
        Self { assumed: true, ..Self::default() }
    }

    /// Records a write that was sent at this time, and the resourceVersion in its answer.
    pub(crate) fn saw(
        &self,
        item: &Item,
        helper: WebhookUse,
        outcome: &Outcome,
        version: Option<&str>,
        sent: Instant,
    ) {
        let mut state = self.state();
        if *outcome == Outcome::Rewritten {
            state.stored_at = state.stored_at.max(Some(sent));
        }
        let as_answered =
            |version: &str| Item { stale_fields: None, resource_version: version.into(), ..item.clone() };
        if let (Some(version), Outcome::Rewritten | Outcome::Current) = (version, outcome) {
            state.stored = Some(as_answered(version));
        }
        if !shows_health(outcome, helper) {
            return;
        }
        state.well = state.well.max(Some(sent));
        // An object that needs no webhook shows nothing about the webhook.
        if let Some(version) = version
            && state.witness.is_none()
            && helper != WebhookUse::Perhaps
        {
            state.witness = Some(as_answered(version));
        }
    }

    /// Whether a write that was sent after this time succeeded.
    pub(crate) fn is_well_since(&self, then: Instant) -> bool {
        self.assumed || self.state().well.is_some_and(|sent| sent > then)
    }

    /// Whether a write that was sent after this time was stored. Writes of current objects and dry runs store nothing.
    pub(crate) fn has_stored_since(&self, then: Instant) -> bool {
        self.assumed || self.state().stored_at.is_some_and(|sent| sent > then)
    }

    /// Whether the credentials were refused and not accepted since. No further object is started then.
    pub(crate) fn is_locked_out(&self) -> bool {
        let state = self.state();
        state.refused > state.well.max(state.accepted)
    }

    /// Whether any object was written.
    pub(crate) fn has_written(&self) -> bool {
        let state = self.state();
        state.witness.is_some() || state.stored.is_some()
    }

    /// Records that the credentials of a request that was sent at this time were accepted.
    pub(crate) fn accepted(&self, sent: Instant) {
        let mut state = self.state();
        state.accepted = state.accepted.max(Some(sent));
    }

    /// Whether the credentials of a request that was sent after this time were accepted.
    fn accepts_since(&self, then: Instant) -> bool {
        self.state().accepted.is_some_and(|sent| sent > then)
    }

    /// Records that an object was given up.
    pub(crate) fn gave_up(&self, item: &Item) {
        let given_up = &mut self.state().given_up;
        if given_up.len() < MAX_GIVEN_UP && !given_up.contains(&item.uid) {
            given_up.push(item.uid.clone());
        }
    }

    /// The uids of objects that cannot be witnesses for this one: itself, and those that were given up.
    pub(crate) fn besides(&self, item: &Item) -> Vec<Box<str>> {
        let mut besides = self.state().given_up.clone();
        besides.retain(|uid| *uid != item.uid);
        besides.push(item.uid.clone());
        besides
    }

    /// Whether a witness failed just now.
    pub(crate) fn is_unwell(&self) -> bool {
        self.state().unwell.is_some_and(|asked| asked.elapsed() < UNWELL_FOR)
    }

    /// Whether more than one object fails.
    fn fails_elsewhere(&self) -> bool {
        let state = self.state();
        state.failing > 1 || state.unwell > state.well
    }

    /// An object that can be written while the server is healthy.
    pub(crate) fn witness(&self) -> Option<Item> {
        self.state().witness.clone()
    }

    /// An object that is stored in the storage version.
    pub(crate) fn stored(&self) -> Option<Item> {
        self.state().stored.clone()
    }

    /// Records the outcome of a witness that was sent at this time.
    pub(crate) fn asked(&self, outcome: &Outcome, sent: Instant) {
        let mut state = self.state();
        match outcome {
            Outcome::Gone => (state.witness, state.stored) = (None, None),
            // A conflict shows too that the server handled the write.
            answered if shows_health(answered, WebhookUse::None) => state.well = state.well.max(Some(sent)),
            _ => state.unwell = Some(sent),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known about the server apart from one failing object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerHealth {
    /// It handles other objects.
    Well,
    /// It does not handle other objects, or that is unknown.
    Unwell,
    /// It answers lists, and there is no other object to write.
    Alone,
    /// It accepts a dry run of this object, and stores no object: its store may be full.
    Unstored,
}

/// The failures of one object.
pub(crate) struct Failures<'a> {
    health: &'a Health,
    /// How many failures count against the object.
    counted: u32,
    /// How many times it was refused while it was unchanged in the store.
    refused: u32,
    first: Option<Instant>,
    last: Option<Instant>,
    /// Since when the credentials are refused, if they are.
    unauthorized: Option<Instant>,
    /// The health of the server since the last failure.
    server: ServerHealth,
}

impl<'a> Failures<'a> {
    pub(crate) fn new(health: &'a Health) -> Self {
        let (first, last, unauthorized) = (None, None, None);
        Self { health, counted: 0, refused: 0, first, last, unauthorized, server: ServerHealth::Unwell }
    }

    /// Records a failure, and decides what to do next.
    pub(crate) fn add(&mut self, blame: Blame, now: Instant, webhook: bool) -> RetryDecision {
        let first = *self.first.get_or_insert_with(|| {
            self.health.state().failing += 1;
            now
        });
        self.counted += u32::from(self.server == ServerHealth::Well || self.last.is_none());
        self.refused += u32::from(blame == Blame::Refusal);
        // If the token was accepted in between, the refusals start again.
        self.unauthorized = match self.unauthorized {
            _ if blame != Blame::Credentials => None,
            Some(since) if !self.last.is_some_and(|last| self.health.accepts_since(last)) => Some(since),
            _ => Some(now),
        };
        if blame == Blame::Credentials {
            self.health.state().refused = Some(now);
        }
        self.last = Some(now);
        let failed = FailureHistory {
            refused: self.refused,
            counted: self.counted,
            lasted: now - self.unauthorized.unwrap_or(first),
            elsewhere: (webhook || self.server == ServerHealth::Unstored) && self.health.fails_elsewhere(),
            alone: self.server == ServerHealth::Alone,
        };
        retry_decision(blame, failed)
    }

    /// The time of the last failure.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.last
    }

    /// For how long the object had been failing when a write was sent.
    pub(crate) fn lasted(&self, sent: Instant) -> Duration {
        self.first.map_or(Duration::ZERO, |first| sent.saturating_duration_since(first))
    }

    /// Records the health of the server since the last failure.
    pub(crate) fn server_was(&mut self, health: ServerHealth) {
        self.server = health;
    }
}

impl Drop for Failures<'_> {
    fn drop(&mut self) {
        if self.first.is_some() {
            self.health.state().failing -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use restow_core::rewrite::outcome::{Answer, classify};

    use super::*;

    fn item(name: &str, converted_fields: bool) -> Item {
        Item {
            namespace: "default".into(),
            name: name.into(),
            uid: name.into(),
            resource_version: "1".into(),
            stale_fields: None,
            converted_fields,
        }
    }

    #[test]
    fn failures_count_only_while_the_server_handles_other_objects() {
        use RetryDecision::{GiveUp, Later, Retry};
        let now = Instant::now();
        // Whether the server was healthy before each further attempt; seconds between attempts; whether another object fails.
        for (well, seconds, others, expected) in [
            ("yyyy", 1, false, [Retry, Retry, Retry, Retry, GiveUp]),
            ("yyyy", 1, true, [Retry, Retry, Retry, Retry, GiveUp]),
            ("nnnn", 5, true, [Retry; 5]),
            ("ynyy", 5, true, [Retry; 5]),
            ("nnnn", 100, true, [Retry, Retry, Retry, Later, Later]),
            ("nnnn", 100, false, [Retry, Retry, Retry, GiveUp, GiveUp]),
        ] {
            let health = Health::default();
            let mut other = Failures::new(&health);
            if others {
                other.add(Blame::Object, now, true);
            }
            let mut failures = Failures::new(&health);
            let mut at = now;
            let mut decided = vec![failures.add(Blame::Object, at, true)];
            for well in well.chars() {
                failures.server_was(if well == 'y' { ServerHealth::Well } else { ServerHealth::Unwell });
                at += Duration::from_secs(seconds);
                decided.push(failures.add(Blame::Object, at, true));
            }
            assert_eq!(decided, expected, "{well} every {seconds} s, {others}");
        }
    }

    #[test]
    fn a_run_ends_when_its_credentials_were_refused_for_a_minute() {
        use Blame::{Credentials, Server};
        use RetryDecision::{Retry, Unauthorized};
        let began = Instant::now();
        // When the credentials of another request were accepted.
        for (failures, accepted, expected) in [
            (&[(Credentials, 0), (Credentials, 61)][..], None, Unauthorized),
            (&[(Server, 0), (Server, 70), (Credentials, 71)], None, Retry),
            (&[(Credentials, 0), (Server, 50), (Credentials, 61)], None, Retry),
            (&[(Server, 0), (Credentials, 10), (Credentials, 71)], None, Unauthorized),
            (&[(Credentials, 10), (Credentials, 71)], Some(5), Unauthorized),
            (&[(Credentials, 10), (Credentials, 71)], Some(65), Retry),
            (&[(Credentials, 10), (Credentials, 71), (Credentials, 132)], Some(65), Unauthorized),
        ] {
            let health = Health::default();
            let mut failed = Failures::new(&health);
            let after = |seconds| began + Duration::from_secs(seconds);
            let mut last = None;
            for (blame, seconds) in failures {
                if let Some(accepted) = accepted.filter(|accepted| accepted < seconds) {
                    health.accepted(after(accepted));
                }
                last = Some(failed.add(*blame, after(*seconds), false));
            }
            assert_eq!(last, Some(expected), "{failures:?} {accepted:?}");
        }
    }

    #[test]
    fn only_a_write_sent_after_the_failure_shows_that_the_server_is_healthy() {
        let health = Health::default();
        let before = Instant::now();
        let failed = before + Duration::from_secs(1);
        health.saw(&item("a", false), WebhookUse::Perhaps, &Outcome::Rewritten, Some("2"), before);
        assert!(!health.is_well_since(failed), "it was sent before the failure");
        assert!(health.witness().is_none(), "asked again, it would need no webhook");
        assert_eq!(health.stored().map(|stored| stored.name), Some("a".into()));
        let after = failed + Duration::from_secs(1);
        health.saw(&item("b", true), WebhookUse::Webhook, &Outcome::Current, Some("3"), after);
        assert!(health.is_well_since(failed));
        assert_eq!(health.witness().map(|witness| witness.resource_version), Some("3".into()));
        assert!(!health.is_well_since(after));

        let later = Instant::now();
        health.asked(&classify(&Answer::http(500)), later);
        assert!(health.is_unwell() && health.witness().is_some());
        health.asked(&Outcome::Gone, later);
        assert!(health.witness().is_none());
        health.asked(&Outcome::Conflicted, after + Duration::from_secs(1));
        assert!(health.is_well_since(after));
        assert!(Health::assumed().is_well_since(later));
    }

    #[test]
    fn an_object_is_not_blamed_while_nothing_is_stored() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let health = Health::default();
        assert!(!health.has_stored_since(now) && Health::assumed().has_stored_since(now));
        health.saw(&item("a", false), WebhookUse::None, &Outcome::Current, Some("2"), at(1));
        assert!(health.is_well_since(now) && !health.has_stored_since(now));
        // The server accepts dry runs of two objects and stores neither.
        let (mut other, mut failures) = (Failures::new(&health), Failures::new(&health));
        other.add(Blame::Object, now, false);
        for seconds in [0, 1, 2, 4, 8, 16, 299] {
            assert_eq!(failures.add(Blame::Object, at(seconds), false), RetryDecision::Retry, "{seconds}");
            failures.server_was(ServerHealth::Unstored);
        }
        assert_eq!(failures.add(Blame::Object, at(300), false), RetryDecision::Later);
        health.saw(&item("a", false), WebhookUse::None, &Outcome::Rewritten, Some("3"), at(301));
        assert!(health.has_stored_since(at(300)));
    }

    #[test]
    fn an_object_that_was_given_up_is_no_witness() {
        let health = Health::default();
        assert_eq!(health.besides(&item("a", false)), ["a".into()]);
        for name in ["a", "b", "b"] {
            health.gave_up(&item(name, false));
        }
        assert_eq!(health.besides(&item("a", false)), ["b".into(), "a".into()]);
        assert_eq!(health.besides(&item("c", false)), ["a".into(), "b".into(), "c".into()]);
        (0..MAX_GIVEN_UP).for_each(|number| health.gave_up(&item(&number.to_string(), false)));
        assert_eq!(health.besides(&item("a", false)).len(), MAX_GIVEN_UP);
    }
}
