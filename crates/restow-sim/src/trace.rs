//! The steps of a run, and the first violated invariant.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use restow_clock::Instant;
use tokio_util::sync::CancellationToken;

/// The maximum number of steps; no run needs as many.
const MAX_STEPS: usize = 20_000;

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name in the specification.
    pub invariant: &'static str,
    /// What happened.
    pub what: String,
}

/// The steps of a run.
#[derive(Clone)]
pub struct Trace(Arc<Inner>);

struct Inner {
    began: Instant,
    state: Mutex<State>,
    violated: CancellationToken,
}

struct State {
    lines: Vec<String>,
    digest: u64,
    violation: Option<Violation>,
}

impl Trace {
    /// A trace that starts now.
    pub fn begin() -> Self {
        let state = State { lines: Vec::new(), digest: 0xcbf2_9ce4_8422_2325, violation: None };
        Self(Arc::new(Inner {
            began: Instant::now(),
            state: Mutex::new(state),
            violated: CancellationToken::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a step.
    pub fn step(&self, what: &str) {
        let line = format!("{:>10.3} {what}", self.0.began.elapsed().as_secs_f64());
        let mut state = self.state();
        // FNV-1a: equal traces have equal digests in every build.
        for byte in line.bytes() {
            state.digest = (state.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        state.lines.push(line);
        let busy = state.lines.len() == MAX_STEPS;
        drop(state);
        if busy {
            self.violate("L1", format!("the run does not end: {MAX_STEPS} steps"));
        }
    }

    /// Records that an invariant is violated. Only the first violation counts.
    pub fn violate(&self, invariant: &'static str, what: String) {
        self.step(&format!("VIOLATED {invariant}: {what}"));
        self.state().violation.get_or_insert(Violation { invariant, what });
        self.0.violated.cancel();
    }

    /// Waits until an invariant is violated.
    pub async fn violated(&self) {
        self.0.violated.cancelled().await;
    }

    /// The seconds since the start.
    pub fn elapsed(&self) -> f64 {
        self.0.began.elapsed().as_secs_f64()
    }

    /// The steps, their digest, and the first violation.
    pub fn end(&self) -> (Vec<String>, u64, Option<Violation>) {
        let mut state = self.state();
        (std::mem::take(&mut state.lines), state.digest, state.violation.clone())
    }
}
