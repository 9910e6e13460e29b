//! Tracks the requests of a connection, to find idle ones.

use std::time::Duration;

use restow_clock::Instant;
use tokio::sync::watch;

/// The requests of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Activity(watch::Sender<Requests>);

#[derive(Clone, Copy, Debug)]
struct Requests {
    /// How many have started.
    begun: u64,
    /// How many of them have not ended.
    under_way: usize,
    /// Since when none is active.
    idle_since: Instant,
    /// Whether the client is known.
    known: bool,
}

/// A request that is active until this is dropped.
#[derive(Debug)]
pub(crate) struct ActiveRequest(watch::Sender<Requests>);

impl Default for Activity {
    fn default() -> Self {
        let idle_since = Instant::now();
        Self(watch::Sender::new(Requests { begun: 0, under_way: 0, idle_since, known: false }))
    }
}

impl Activity {
    /// A request has started.
    pub(crate) fn begin(&self) -> ActiveRequest {
        self.0.send_modify(|requests| {
            requests.begun += 1;
            requests.under_way += 1;
        });
        ActiveRequest(self.0.clone())
    }

    /// The client is known.
    pub(crate) fn known(&self) {
        self.0.send_if_modified(|requests| {
            requests.known = true;
            false
        });
    }

    /// Since when the connection has been idle, if it may be evicted.
    pub(crate) fn evictable_since(&self) -> Option<Instant> {
        let requests = self.0.borrow();
        (requests.under_way == 0 && !requests.known).then_some(requests.idle_since)
    }

    /// Completes when the connection has been idle for too long: `first` before its first request, `next` after that.
    pub(crate) fn idle(&self, first: Duration, next: Duration) -> impl Future<Output = ()> + use<> {
        let mut requests = self.0.subscribe();
        async move {
            // Without a sender there are no more requests.
            while let Ok(begun) = requests.wait_for(|now| now.under_way == 0).await.map(|now| now.begun) {
                let timeout = if begun == 0 { first } else { next };
                let another = requests.wait_for(|now| now.begun != begun);
                if !tokio::time::timeout(timeout, another).await.is_ok_and(|another| another.is_ok()) {
                    return;
                }
            }
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.send_modify(|requests| {
            requests.under_way -= 1;
            requests.idle_since = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests {
    use restow_clock::Instant;

    use super::*;

    const FIRST: Duration = Duration::from_secs(10);
    const NEXT: Duration = Duration::from_secs(90);

    #[tokio::test(start_paused = true)]
    async fn the_first_request_has_a_shorter_timeout_than_the_next() {
        let start = Instant::now();
        Activity::default().idle(FIRST, NEXT).await;
        assert_eq!(start.elapsed().as_secs(), 10);
        let activity = Activity::default();
        let idle = tokio::spawn(activity.idle(FIRST, NEXT));
        // A request that has already ended counts as well.
        drop(activity.begin());
        let start = Instant::now();
        idle.await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 90);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_an_active_request_is_not_idle() {
        let activity = Activity::default();
        let start = Instant::now();
        let idle = tokio::spawn(activity.idle(FIRST, NEXT));
        let requests = [activity.begin(), activity.begin()];
        for request in requests {
            tokio::time::sleep(2 * NEXT).await;
            assert!(!idle.is_finished());
            drop(request);
        }
        idle.await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 5 * 90);
    }
}
