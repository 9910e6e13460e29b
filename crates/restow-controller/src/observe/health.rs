//! Liveness and readiness of this process: whether its loops still run, and what it waits for.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use restow_clock::Instant;

/// The state that `/healthz` and `/readyz` report.
#[derive(Debug)]
pub struct Health {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What the process waits for; none if it is ready.
    waits_for: Option<Cow<'static, str>>,
    beats: Vec<Beat>,
}

/// The last heartbeat of a loop, and when the next one is due.
#[derive(Debug)]
struct Beat {
    name: &'static str,
    last: Instant,
    within: Duration,
}

impl Default for Health {
    fn default() -> Self {
        let state = State { waits_for: Some(Cow::Borrowed("startup")), beats: Vec::new() };
        Self { state: Mutex::new(state) }
    }
}

impl Health {
    /// Marks the process as ready.
    pub fn ready(&self) {
        self.state().waits_for = None;
    }

    /// Marks the process as not ready.
    pub fn waits_for(&self, what: impl Into<Cow<'static, str>>) {
        self.state().waits_for = Some(what.into());
    }

    /// Records that a loop runs; its next heartbeat is due within `within`.
    pub fn beat(&self, name: &'static str, within: Duration) {
        let last = Instant::now();
        let mut state = self.state();
        match state.beats.iter_mut().find(|beat| beat.name == name) {
            Some(beat) => *beat = Beat { name, last, within },
            None => state.beats.push(Beat { name, last, within }),
        }
    }

    /// Removes a loop that has ended.
    pub fn ended(&self, name: &'static str) {
        self.state().beats.retain(|beat| beat.name != name);
    }

    /// Fails with the names of loops whose heartbeat is overdue.
    pub fn alive(&self) -> Result<(), String> {
        let mut silent = Vec::new();
        for Beat { name, last, within } in &self.state().beats {
            let silence = last.elapsed();
            if silence > *within {
                silent.push(format!("{name} has not run for {} s", silence.as_secs()));
            }
        }
        if silent.is_empty() { Ok(()) } else { Err(silent.join("; ")) }
    }

    /// Fails with what the process waits for.
    pub fn is_ready(&self) -> Result<(), String> {
        match &self.state().waits_for {
            None => Ok(()),
            Some(what) => Err(format!("waiting for {what}")),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stuck_loop_is_named() {
        let health = Health::default();
        let pass = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        assert_eq!(health.alive(), Ok(()), "no loop is registered");
        health.beat("trigger", Duration::from_secs(60));
        health.beat("migrator", Duration::from_secs(10));
        pass(10).await;
        assert_eq!(health.alive(), Ok(()));
        pass(2).await;
        assert_eq!(health.alive(), Err("migrator has not run for 12 s".to_owned()));
        pass(60).await;
        assert_eq!(
            health.alive(),
            Err("trigger has not run for 72 s; migrator has not run for 72 s".to_owned())
        );
        health.beat("trigger", Duration::from_secs(60));
        health.ended("migrator");
        assert_eq!(health.alive(), Ok(()));
    }

    #[test]
    fn readiness_says_what_the_process_waits_for() {
        let health = Health::default();
        assert_eq!(health.is_ready(), Err("waiting for startup".to_owned()));
        health.waits_for(format!("{} of 2 caches", 1));
        assert_eq!(health.is_ready(), Err("waiting for 1 of 2 caches".to_owned()));
        health.ready();
        assert_eq!(health.is_ready(), Ok(()));
    }
}
