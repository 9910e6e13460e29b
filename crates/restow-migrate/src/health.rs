//! Whether the server is well, as other writes show, while it fails at some.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use restow_clock::Instant;
use restow_core::outcome::{Helper, Outcome, Patience, patience, shows_well};

use crate::pages::Item;

/// How long a server that failed at a witness is taken to be unwell.
const UNWELL_FOR: Duration = Duration::from_secs(1);

/// What all writes of a pass tell of their server.
#[derive(Default)]
pub(crate) struct Health {
    state: Mutex<State>,
    /// Held by the one who asks.
    pub(crate) asking: tokio::sync::Mutex<()>,
    /// Whether the server is taken to be well.
    assumed: bool,
}

#[derive(Default)]
struct State {
    /// When the last write was sent that was answered well.
    well: Option<Instant>,
    /// When a witness was last asked in vain.
    unwell: Option<Instant>,
    /// An object that can be written, as it was last answered.
    witness: Option<Item>,
    /// How many objects have failed and are not decided yet.
    failing: usize,
}

impl Health {
    /// Takes the server to be well, for objects that were given up before.
    pub(crate) fn assumed() -> Self {
        Self { assumed: true, ..Self::default() }
    }

    /// Takes in a write that was sent then, and the resourceVersion it came back with.
    pub(crate) fn saw(
        &self,
        item: &Item,
        helper: Helper,
        outcome: &Outcome,
        version: Option<&str>,
        sent: Instant,
    ) {
        if !shows_well(outcome, helper) {
            return;
        }
        let mut state = self.state();
        state.well = state.well.max(Some(sent));
        // One that no webhook has a part in says nothing of the webhook when it is asked again.
        if let Some(version) = version
            && state.witness.is_none()
            && helper != Helper::Perhaps
        {
            let witness = Item { stale_fields: None, resource_version: version.into(), ..item.clone() };
            state.witness = Some(witness);
        }
    }

    /// Whether a write that was sent since then was answered well.
    pub(crate) fn is_well_since(&self, then: Instant) -> bool {
        self.assumed || self.state().well.is_some_and(|sent| sent > then)
    }

    /// Whether a witness was asked in vain just now.
    pub(crate) fn is_unwell(&self) -> bool {
        self.state().unwell.is_some_and(|asked| asked.elapsed() < UNWELL_FOR)
    }

    /// Whether not just one object fails.
    fn fails_elsewhere(&self) -> bool {
        let state = self.state();
        state.failing > 1 || state.unwell > state.well
    }

    /// An object that can be written when the server is well.
    pub(crate) fn witness(&self) -> Option<Item> {
        self.state().witness.clone()
    }

    /// Takes in what a witness, asked then, was answered with.
    pub(crate) fn asked(&self, outcome: &Outcome, sent: Instant) {
        let mut state = self.state();
        match outcome {
            Outcome::Gone => state.witness = None,
            // Even one that somebody else has written since was read and judged.
            answered if shows_well(answered, Helper::None) => state.well = state.well.max(Some(sent)),
            _ => state.unwell = Some(sent),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The failures of one object.
pub(crate) struct Failures<'a> {
    health: &'a Health,
    /// How many count against it.
    counted: u32,
    first: Option<Instant>,
    last: Option<Instant>,
    /// Whether the server was well otherwise since the last one.
    well: bool,
}

impl<'a> Failures<'a> {
    pub(crate) fn new(health: &'a Health) -> Self {
        Self { health, counted: 0, first: None, last: None, well: false }
    }

    /// Takes one more in, and says what to do about it.
    pub(crate) fn add(&mut self, now: Instant, webhook: bool) -> Patience {
        let first = *self.first.get_or_insert_with(|| {
            self.health.state().failing += 1;
            now
        });
        self.counted += u32::from(self.well || self.last.is_none());
        self.last = Some(now);
        patience(self.counted, now - first, webhook && self.health.fails_elsewhere())
    }

    /// When the last one was; none when it has not failed.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.last
    }

    /// Takes in whether the server was well otherwise since the last one.
    pub(crate) fn otherwise(&mut self, well: bool) {
        self.well = well;
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
    use restow_core::outcome::{Answer, classify};

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
    fn failures_count_while_the_server_is_well_otherwise() {
        use Patience::{Again, GiveUp, Later};
        let now = Instant::now();
        // Whether the server was well before each further try; seconds between them; whether another object fails too.
        for (well, seconds, others, expected) in [
            ("yyyy", 1, false, [Again, Again, Again, Again, GiveUp]),
            ("yyyy", 1, true, [Again, Again, Again, Again, GiveUp]),
            ("nnnn", 5, true, [Again; 5]),
            ("ynyy", 5, true, [Again; 5]),
            ("nnnn", 100, true, [Again, Again, Again, Later, Later]),
            ("nnnn", 100, false, [Again, Again, Again, GiveUp, GiveUp]),
        ] {
            let health = Health::default();
            let mut other = Failures::new(&health);
            if others {
                other.add(now, true);
            }
            let mut failures = Failures::new(&health);
            let mut at = now;
            let mut decided = vec![failures.add(at, true)];
            for well in well.chars() {
                failures.otherwise(well == 'y');
                at += Duration::from_secs(seconds);
                decided.push(failures.add(at, true));
            }
            assert_eq!(decided, expected, "{well} every {seconds} s, {others}");
        }
    }

    #[test]
    fn only_what_was_sent_since_shows_that_it_is_well_now() {
        let health = Health::default();
        let before = Instant::now();
        let failed = before + Duration::from_secs(1);
        health.saw(&item("a", false), Helper::Perhaps, &Outcome::Rewritten, Some("2"), before);
        assert!(!health.is_well_since(failed), "it was sent before the failure");
        assert!(health.witness().is_none(), "asked again, it would need no webhook");
        let after = failed + Duration::from_secs(1);
        health.saw(&item("b", true), Helper::Webhook, &Outcome::Current, Some("3"), after);
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
}
