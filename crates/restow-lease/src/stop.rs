//! A [`Stop`] tells work to end, because the work was cancelled or because its [`Term`] is over.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio_util::sync::CancellationToken;

use crate::term::Term;

/// Work checks it before every request.
#[derive(Clone, Debug)]
pub struct Stop {
    cancelled: CancellationToken,
    term: Option<Arc<Term>>,
}

impl From<CancellationToken> for Stop {
    fn from(cancelled: CancellationToken) -> Self {
        Self { cancelled, term: None }
    }
}

impl Stop {
    /// Stops on cancellation, and at the end of a term.
    pub fn within(cancelled: CancellationToken, term: Option<Arc<Term>>) -> Self {
        Self { cancelled, term }
    }

    /// A child that stops with this one, and that can be cancelled by itself.
    pub fn child(&self) -> (CancellationToken, Self) {
        let cancelled = self.cancelled.child_token();
        (cancelled.clone(), Self { cancelled, term: self.term.clone() })
    }

    /// Whether no more requests may be sent.
    pub fn is_stopped(&self) -> bool {
        self.cancelled.is_cancelled() || self.term.as_ref().is_some_and(|term| term.left().is_zero())
    }

    /// Returns when it is time to stop.
    pub async fn stopped(&self) {
        let Some(term) = &self.term else { return self.cancelled.cancelled().await };
        tokio::select! {
            biased;
            () = self.cancelled.cancelled() => {}
            () = term.over() => {}
        }
    }

    /// Runs `work` until it is time to stop. It checks before every poll, so that work never continues after that.
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
    use crate::term::CHECK_EVERY;

    #[tokio::test(start_paused = true)]
    async fn a_term_is_over_after_the_machine_was_suspended() {
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
        // A clock that is set back does not extend a term.
        tokio::time::sleep(ten).await;
        assert!(stop.is_stopped());
        // A request that was sent before the pause begins no term after it.
        clock.skew(SignedDuration::ZERO);
        let sent = term.moment();
        clock.skew(SignedDuration::from_secs(30));
        term.begin(sent, ten);
        assert!(stop.is_stopped());

        // Work that wakes after the pause does nothing more, and work that sleeps is stopped soon.
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
        assert!(since.elapsed() <= CHECK_EVERY * 2, "{:?}", since.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_that_was_found_over_is_not_renewed() {
        let clock = restow_clock::simulate(Timestamp::UNIX_EPOCH, 1);
        let term = Arc::new(Term::default());
        let stop = Stop::within(CancellationToken::new(), Some(Arc::clone(&term)));
        let ten = Duration::from_secs(10);
        // By how many seconds the clock is off when the term is checked, and when it is renewed.
        for (checks, renews, renewed) in
            [(0, 0, true), (9, 0, true), (15, 15, false), (15, 0, false), (0, 15, false)]
        {
            clock.skew(SignedDuration::ZERO);
            term.begin(term.moment(), ten);
            clock.skew(SignedDuration::from_secs(checks));
            let stopped = stop.is_stopped();
            clock.skew(SignedDuration::from_secs(renews));
            assert_eq!(term.renew(term.moment(), ten), renewed, "{checks} {renews}");
            assert!(!stopped || stop.is_stopped(), "work that was stopped stays stopped: {checks} {renews}");
        }
    }

    #[tokio::test]
    async fn a_term_ends_by_itself() {
        let term = Arc::new(Term::default());
        let stop = Stop::within(CancellationToken::new(), Some(Arc::clone(&term)));
        assert!(stop.is_stopped(), "a term that has not begun");
        term.begin(term.moment(), Duration::from_secs(3600));
        assert!(!stop.is_stopped());
        assert_eq!(stop.unless(async { 1 }).await, Some(1));
        let (cancel, child) = stop.child();
        cancel.cancel();
        assert!(child.is_stopped() && !stop.is_stopped());
        child.stopped().await;
        term.finish();
        stop.stopped().await;
        assert_eq!(stop.unless(async { 1 }).await, None);
    }
}
