//! Threads for converters, which may block, panic or never return.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

type Work = Box<dyn FnOnce() + Send>;

/// The threads. A thread that has finished waits for more work.
///
/// tokio's own threads for blocking work are not used: the end of a runtime waits for them, and one that hangs would keep
/// the process from ending.
#[derive(Debug)]
pub(super) struct Workers {
    /// One permit for each conversion that may run.
    places: Arc<Semaphore>,
    at_once: usize,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    idle: Mutex<Vec<Sender<Work>>>,
    /// How many threads work for nobody any more.
    abandoned: AtomicUsize,
    most_abandoned: usize,
}

/// Work that is done, unless this is dropped: then its result is not wanted any more.
#[derive(Debug)]
pub(super) struct Working<T> {
    result: oneshot::Receiver<T>,
    task: Arc<Task>,
}

/// Tells work whether its result is still wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted(Arc<Task>);

#[derive(Debug)]
struct Task {
    unwanted: AtomicBool,
    state: Mutex<State>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct State {
    place: Option<OwnedSemaphorePermit>,
    abandoned: bool,
    ended: bool,
}

impl Wanted {
    pub(super) fn get(&self) -> bool {
        !self.0.unwanted.load(Ordering::Relaxed)
    }
}

impl Workers {
    pub(super) fn new(at_once: usize, most_abandoned: usize) -> Self {
        let at_once = at_once.clamp(1, 10_000);
        let shared = Shared { idle: Mutex::default(), abandoned: AtomicUsize::new(0), most_abandoned };
        Self { places: Arc::new(Semaphore::new(at_once)), at_once, shared: Arc::new(shared) }
    }

    /// How many threads work for nobody any more.
    pub(super) fn abandoned(&self) -> usize {
        self.shared.abandoned.load(Ordering::Relaxed)
    }

    /// Whether nothing can be converted, because every place is held by work that does not end.
    pub(super) fn all_stuck(&self) -> bool {
        self.abandoned() >= self.shared.most_abandoned + self.at_once
    }

    /// Does work on another thread as soon as there is a place.
    ///
    /// # Errors
    /// When no thread can be made.
    pub(super) async fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce(Wanted) -> T + Send + 'static,
    ) -> std::io::Result<Working<T>> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(std::io::Error::other)?;
        let state = State { place: Some(place), abandoned: false, ended: false };
        let shared = Arc::clone(&self.shared);
        let task = Arc::new(Task { unwanted: AtomicBool::new(false), state: Mutex::new(state), shared });
        let (sender, result) = oneshot::channel();
        let working = Working { result, task: Arc::clone(&task) };
        self.hand_over(Box::new(move || {
            let wanted = Wanted(Arc::clone(&task));
            let result = catch_unwind(AssertUnwindSafe(|| work(wanted)));
            // Before anybody learns of it: what has ended is not abandoned.
            task.end();
            // Without a result, the receiver learns that the work panicked.
            if let Ok(result) = result {
                let _ = sender.send(result);
            }
        }))?;
        Ok(working)
    }

    /// Gives work to a thread that waits for it, or to a new one.
    fn hand_over(&self, mut work: Work) -> std::io::Result<()> {
        while let Some(idle) = lock(&self.shared.idle).pop() {
            match idle.send(work) {
                Ok(()) => return Ok(()),
                Err(refused) => work = refused.0,
            }
        }
        let (sender, receiver) = channel::<Work>();
        let shared = Arc::downgrade(&self.shared);
        std::thread::Builder::new().name("convert".to_owned()).spawn(move || {
            work();
            loop {
                // When the server has ended, nobody keeps the sender.
                let Some(shared) = shared.upgrade() else { return };
                lock(&shared.idle).push(sender.clone());
                drop(shared);
                match receiver.recv() {
                    Ok(work) => work(),
                    Err(_) => return,
                }
            }
        })?;
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The threads hold clones of their own senders, so a closed channel does not wake them.
        for idle in lock(&self.idle).drain(..) {
            let _ = idle.send(Box::new(|| {}));
        }
    }
}

impl Task {
    fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        if state.abandoned {
            self.shared.abandoned.fetch_sub(1, Ordering::Relaxed);
        }
        state.place = None;
    }

    fn abandon(&self) {
        self.unwanted.store(true, Ordering::Relaxed);
        let mut state = lock(&self.state);
        if state.ended || state.abandoned {
            return;
        }
        state.abandoned = true;
        // Above the limit, it keeps its place until it ends: threads stay bounded.
        if self.shared.abandoned.fetch_add(1, Ordering::Relaxed) < self.shared.most_abandoned {
            state.place = None;
        }
    }
}

impl<T> Future for Working<T> {
    /// None if the work panicked.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.result).poll(context).map(Result::ok)
    }
}

impl<T> Drop for Working<T> {
    fn drop(&mut self) {
        self.task.abandon();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_thread_that_has_finished_is_used_again() {
        let workers = Workers::new(1, 0);
        let first = workers.start(|_| std::thread::current().id()).await.unwrap().await.unwrap();
        let idle = async {
            while lock(&workers.shared.idle).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, idle).await.unwrap();
        let second = workers.start(|_| std::thread::current().id()).await.unwrap().await.unwrap();
        assert_eq!(first, second);
    }

    #[tokio::test]
    async fn work_that_panics_gives_its_place_back() {
        let workers = Workers::new(1, 0);
        for _ in 0..3 {
            assert_eq!(workers.start(|_| -> u8 { panic!("as asked") }).await.unwrap().await, None);
        }
        assert_eq!(workers.start(|_| 7).await.unwrap().await, Some(7));
    }

    #[tokio::test]
    async fn abandoned_work_makes_room_up_to_the_limit() {
        let workers = Workers::new(1, 2);
        let mut held = Vec::new();
        for expected in 1..=3 {
            let (release, waits) = mpsc::channel::<()>();
            let working = workers.start(move |wanted| (waits.recv().is_ok(), wanted.get())).await.unwrap();
            drop(working);
            assert_eq!(workers.abandoned(), expected);
            held.push(release);
        }
        assert!(workers.all_stuck(), "two are replaced, the third one keeps its place");
        assert_eq!(workers.places.available_permits(), 0);
        held.pop().unwrap().send(()).unwrap();
        let room = tokio::time::timeout(LONG, workers.start(|wanted| wanted.get()));
        assert_eq!(room.await.unwrap().unwrap().await, Some(true));
        assert!(!workers.all_stuck());
        assert_eq!(workers.abandoned(), 2);
    }

    #[tokio::test]
    async fn work_learns_that_its_result_is_not_wanted_any_more() {
        let workers = Workers::new(1, 1);
        let (told, tells) = mpsc::channel();
        let working = workers
            .start(move |wanted| {
                while wanted.get() {
                    std::thread::yield_now();
                }
                told.send(()).unwrap();
            })
            .await
            .unwrap();
        drop(working);
        tells.recv_timeout(LONG).unwrap();
    }
}
