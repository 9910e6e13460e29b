//! A response body that is dropped when its client stops reading.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use restow_clock::Instant;
use tokio::task::AbortHandle;

use crate::activity::ActiveRequest;

/// A response body. When it is dropped, its in-flight permit and its source are released, and its connection becomes idle.
pub(crate) struct StallGuard<B> {
    held: Arc<Mutex<Option<GuardedBody<B>>>>,
    watchdog: AbortHandle,
}

struct GuardedBody<B> {
    body: B,
    _busy: ActiveRequest,
    waiting: Arc<Waiting>,
}

/// Since when the next frame is ready but not polled; none while it is being produced.
#[derive(Debug)]
struct Waiting(Mutex<Option<Instant>>);

impl Waiting {
    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    fn since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the reader of a body and notes the time: hyper does not poll for the next frame while the HTTP/2 flow control
/// window of the client is full.
struct NotingWaker {
    waiting: Arc<Waiting>,
    reader: Waker,
}

impl Wake for NotingWaker {
    fn wake(self: Arc<Self>) {
        self.waiting.set(Some(self.waiting.since().unwrap_or_else(Instant::now)));
        self.reader.wake_by_ref();
    }
}

impl<B: Body + Send + Unpin + 'static> StallGuard<B> {
    /// Drops the body when it is not read for `timeout`.
    pub(crate) fn new(body: B, busy: ActiveRequest, timeout: Duration) -> Self {
        let waiting = Arc::new(Waiting(Mutex::new(Some(Instant::now()))));
        let held = GuardedBody { body, _busy: busy, waiting };
        let held = Arc::new(Mutex::new(Some(held)));
        let watchdog = tokio::spawn(watch_for_stall(Arc::clone(&held), timeout)).abort_handle();
        Self { held, watchdog }
    }
}

fn lock<B>(held: &Mutex<Option<GuardedBody<B>>>) -> MutexGuard<'_, Option<GuardedBody<B>>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn watch_for_stall<B>(held: Arc<Mutex<Option<GuardedBody<B>>>>, timeout: Duration) {
    loop {
        tokio::time::sleep(timeout / 4).await;
        let mut held = lock(&held);
        match held.as_ref().map(|held| held.waiting.since()) {
            None => return,
            Some(Some(since)) if since.elapsed() >= timeout => return drop(held.take()),
            Some(_) => {}
        }
    }
}

impl<B> Drop for StallGuard<B> {
    fn drop(&mut self) {
        self.watchdog.abort();
    }
}

impl<B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + Unpin> Body for StallGuard<B> {
    type Data = B::Data;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        let mut held = lock(&self.held);
        let Some(own) = held.as_mut() else {
            return Poll::Ready(Some(Err("the answer was not read in time".into())));
        };
        own.waiting.set(None);
        let noted = NotingWaker { waiting: Arc::clone(&own.waiting), reader: context.waker().clone() };
        let waker = Waker::from(Arc::new(noted));
        let polled = Pin::new(&mut own.body).poll_frame(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            own.waiting.set(Some(Instant::now()));
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.held).as_ref().is_some_and(|held| held.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.held).as_ref().map_or_else(SizeHint::default, |held| held.body.size_hint())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::{StreamExt as _, stream};
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;
    use crate::activity::Activity;

    const STALL_TIMEOUT: Duration = Duration::from_secs(60);

    type Part = Result<Frame<Bytes>, std::io::Error>;

    /// A body, and a handle that shows whether it is still held.
    fn guarded(
        parts: impl futures::Stream<Item = Part> + Send + Unpin + 'static,
    ) -> (StallGuard<impl Body<Data = Bytes, Error = std::io::Error> + Send + Unpin + 'static>, Arc<()>) {
        let held = Arc::new(());
        let with = Arc::clone(&held);
        let parts = parts.map(move |part| {
            let _ = &with;
            part
        });
        (StallGuard::new(StreamBody::new(parts), Activity::default().begin(), STALL_TIMEOUT), held)
    }

    fn part() -> Part {
        Ok(Frame::data(Bytes::from_static(b"x")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_its_client_stops_reading_is_dropped() {
        let (mut body, held) = guarded(stream::repeat_with(part));
        for _ in 0..5 {
            // A slow reader is not a stalled one.
            assert!(body.frame().await.unwrap().is_ok());
            tokio::time::sleep(STALL_TIMEOUT / 2).await;
        }
        assert_eq!(Arc::strong_count(&held), 2);
        tokio::time::sleep(STALL_TIMEOUT).await;
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_its_client_never_reads_is_dropped() {
        let (body, held) = guarded(stream::repeat_with(part));
        tokio::time::sleep(2 * STALL_TIMEOUT).await;
        assert_eq!(Arc::strong_count(&held), 1);
        drop(body);
    }

    /// An HTTP/2 client can close its window while the next frame is being produced.
    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_not_polled_after_a_wake_is_dropped() {
        let later = stream::once(Box::pin(async {
            tokio::time::sleep(10 * STALL_TIMEOUT).await;
            part()
        }));
        let (mut body, held) = guarded(later);
        assert!(futures::poll!(body.frame()).is_pending());
        tokio::time::sleep(10 * STALL_TIMEOUT).await;
        assert_eq!(Arc::strong_count(&held), 2);
        tokio::time::sleep(2 * STALL_TIMEOUT).await;
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_more_is_not_dropped() {
        let later = stream::once(Box::pin(async {
            tokio::time::sleep(10 * STALL_TIMEOUT).await;
            part()
        }));
        let (mut body, _held) = guarded(stream::iter([part()]).chain(later));
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.is_none());
    }
}
