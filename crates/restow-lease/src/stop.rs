//! A [`Stop`]: tells work to end, because it was cancelled or because the [`Term`] it acts in is over.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio_util::sync::CancellationToken;

use crate::term::Term;

/// Asked before everything that is sent.
#[derive(Clone, Debug)]
pub struct Stop {
    told: CancellationToken,
    term: Option<Arc<Term>>,
}

impl From<CancellationToken> for Stop {
    fn from(told: CancellationToken) -> Self {
        Self { told, term: None }
    }
}

impl Stop {
    /// Stops when told, and with the end of a term.
    pub fn within(told: CancellationToken, term: Option<Arc<Term>>) -> Self {
        Self { told, term }
    }

    /// One that is stopped with this one, and by itself.
    pub fn child(&self) -> (CancellationToken, Self) {
        let told = self.told.child_token();
        (told.clone(), Self { told, term: self.term.clone() })
    }

    /// Whether to send nothing more.
    pub fn is_stopped(&self) -> bool {
        self.told.is_cancelled() || self.term.as_ref().is_some_and(|term| term.left().is_zero())
    }

    /// Ends when it is time to stop.
    pub async fn stopped(&self) {
        let Some(term) = &self.term else { return self.told.cancelled().await };
        tokio::select! {
            biased;
            () = self.told.cancelled() => {}
            () = term.over() => {}
        }
    }

    /// Does something, unless it is time to stop first. Whatever wakes the work up, it goes on only if it may.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let may_go_on = poll_fn(|context| match self.is_stopped() {
            true => Poll::Ready(None),
            false => work.as_mut().poll(context).map(Some),
        });
        tokio::select! {
            biased;
            () = self.stopped() => None,
            done = may_go_on => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::{SignedDuration, Timestamp};
    use restow_clock::Instant;

    use super::*;
    use crate::term::LOOK_EVERY;

    #[tokio::test(start_paused = true)]
    async fn a_term_is_over_after_a_pause_that_no_timer_has_seen() {
        let clock = restow_clock::simulate(Timestamp::UNIX_EPOCH, 1);
        let term = Arc::new(Term::default());
        let stop = Stop::within(CancellationToken::new(), Some(Arc::clone(&term)));
        let ten = Duration::from_secs(10);
        for (paused, stopped) in [(0, false), (9, false), (10, true), (3600, true), (-3600, false)] {
            clock.skew(SignedDuration::ZERO);
            term.begin(term.moment(), ten);
            clock.skew(SignedDuration::from_secs(paused));
            assert_eq!(stop.is_stopped(), stopped, "{paused}");
        }
        // A clock that is set back does not make it longer.
        tokio::time::sleep(ten).await;
        assert!(stop.is_stopped());
        // A request that was sent before the pause gives no right after it.
        clock.skew(SignedDuration::ZERO);
        let sent = term.moment();
        clock.skew(SignedDuration::from_secs(30));
        term.begin(sent, ten);
        assert!(stop.is_stopped());

        // What is woken after the pause does nothing more, and what sleeps is stopped soon.
        clock.skew(SignedDuration::ZERO);
        term.begin(term.moment(), ten);
        let mut wrote = false;
        let work = stop.unless(async {
            clock.skew(SignedDuration::from_secs(60));
            tokio::task::yield_now().await;
            wrote = true;
        });
        assert_eq!(work.await, None);
        assert!(!wrote);
        clock.skew(SignedDuration::ZERO);
        term.begin(term.moment(), ten);
        let since = Instant::now();
        let pause = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            clock.skew(SignedDuration::from_secs(60));
            std::future::pending::<()>().await;
        };
        assert_eq!(stop.unless(pause).await, None);
        assert!(since.elapsed() <= LOOK_EVERY * 2, "{:?}", since.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_that_somebody_found_over_is_not_renewed() {
        let clock = restow_clock::simulate(Timestamp::UNIX_EPOCH, 1);
        let term = Arc::new(Term::default());
        let stop = Stop::within(CancellationToken::new(), Some(Arc::clone(&term)));
        let ten = Duration::from_secs(10);
        // By how many seconds the clock is off when somebody looks, and when the term is renewed.
        for (looks, renews, renewed) in
            [(0, 0, true), (9, 0, true), (15, 15, false), (15, 0, false), (0, 15, false)]
        {
            clock.skew(SignedDuration::ZERO);
            term.begin(term.moment(), ten);
            clock.skew(SignedDuration::from_secs(looks));
            let stopped = stop.is_stopped();
            clock.skew(SignedDuration::from_secs(renews));
            assert_eq!(term.renew(term.moment(), ten), renewed, "{looks} {renews}");
            assert!(
                !stopped || stop.is_stopped(),
                "who was stopped is stopped like all others: {looks} {renews}"
            );
        }
    }

    #[tokio::test]
    async fn a_term_ends_by_itself() {
        let term = Arc::new(Term::default());
        let stop = Stop::within(CancellationToken::new(), Some(Arc::clone(&term)));
        assert!(stop.is_stopped(), "a term that has not begun gives no right");
        term.begin(term.moment(), Duration::from_secs(3600));
        assert!(!stop.is_stopped());
        assert_eq!(stop.unless(async { 1 }).await, Some(1));
        let (told, child) = stop.child();
        told.cancel();
        assert!(child.is_stopped() && !stop.is_stopped());
        child.stopped().await;
        term.finish();
        stop.stopped().await;
        assert_eq!(stop.unless(async { 1 }).await, None);
    }
}
