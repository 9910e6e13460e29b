//! A simulated process: it can be killed and paused, and has its own wall clock.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use jiff::SignedDuration;
use restow_clock::Simulation;

/// How a process is controlled from outside.
#[derive(Default)]
pub(crate) struct Control {
    down: AtomicBool,
    paused: AtomicBool,
    /// The skew of its wall clock.
    skew: SignedDuration,
    waker: AtomicWaker,
}

impl Control {
    /// A process with this clock skew in seconds.
    pub(crate) fn skewed(seconds: i64) -> Self {
        Self { skew: SignedDuration::from_secs(seconds), ..Self::default() }
    }

    /// Kills it, or allows it to start again.
    pub(crate) fn down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Pauses or resumes it.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Waits until it may start.
    pub(crate) async fn up(&self) {
        std::future::poll_fn(|context| {
            if !self.down.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            self.waker.register(context.waker());
            Poll::Pending
        })
        .await;
    }
}

/// The wall clocks of a run.
pub(crate) struct Clocks<'a> {
    pub(crate) simulation: &'a Simulation,
    /// The skew of all clocks.
    pub(crate) skew: Cell<SignedDuration>,
}

impl Clocks<'_> {
    /// Sets the skew of all clocks.
    pub(crate) fn skew(&self, skew: SignedDuration) {
        self.skew.set(skew);
        self.simulation.skew(skew);
    }
}

/// Runs work as a process, until it ends or is killed.
pub(crate) async fn process(control: &Control, clocks: &Clocks<'_>, work: impl Future<Output = ()>) {
    let mut work = Box::pin(work);
    std::future::poll_fn(|context| poll(control, clocks, work.as_mut(), context)).await;
}

fn poll(
    control: &Control,
    clocks: &Clocks<'_>,
    work: Pin<&mut impl Future<Output = ()>>,
    context: &mut Context<'_>,
) -> Poll<()> {
    if control.down.load(Ordering::Relaxed) {
        return Poll::Ready(());
    }
    control.waker.register(context.waker());
    if control.paused.load(Ordering::Relaxed) {
        return Poll::Pending;
    }
    clocks.simulation.skew(clocks.skew.get() + control.skew);
    let polled = work.poll(context);
    clocks.simulation.skew(clocks.skew.get());
    polled
}
