//! Whether the loops of this process still turn, and whether it is ready to be relied on.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use restow_clock::Instant;

/// What the loops say of themselves.
#[derive(Debug)]
pub struct Health {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What it waits for; none when it is ready.
    waits_for: Option<Cow<'static, str>>,
    beats: Vec<Beat>,
}

/// A loop that has promised to beat again.
#[derive(Debug)]
struct Beat {
    name: &'static str,
    last: Instant,
    within: Duration,
}

impl Default for Health {
    fn default() -> Self {
        let state = State { waits_for: Some(Cow::Borrowed("its start")), beats: Vec::new() };
        Self { state: Mutex::new(state) }
    }
}

impl Health {
    /// It waits for nothing any more.
    pub fn ready(&self) {
        self.state().waits_for = None;
    }

    /// It is not ready, and what for.
    pub fn waits_for(&self, what: impl Into<Cow<'static, str>>) {
        self.state().waits_for = Some(what.into());
    }

    /// A loop turns, and will have turned again within this time.
    pub fn beat(&self, name: &'static str, within: Duration) {
        let last = Instant::now();
        let mut state = self.state();
        match state.beats.iter_mut().find(|beat| beat.name == name) {
            Some(beat) => *beat = Beat { name, last, within },
            None => state.beats.push(Beat { name, last, within }),
        }
    }

    /// A loop has ended and need not beat.
    pub fn rests(&self, name: &'static str) {
        self.state().beats.retain(|beat| beat.name != name);
    }

    /// Names the loops that have been silent for too long.
    pub fn alive(&self) -> Result<(), String> {
        let mut silent = Vec::new();
        for Beat { name, last, within } in &self.state().beats {
            let silence = last.elapsed();
            if silence > *within {
                silent.push(format!("{name} has been silent for {} s", silence.as_secs()));
            }
        }
        if silent.is_empty() { Ok(()) } else { Err(silent.join("; ")) }
    }

    /// Says what it waits for.
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
    async fn a_silent_loop_is_named() {
        let health = Health::default();
        let pass = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        assert_eq!(health.alive(), Ok(()), "no loop has promised anything");
        health.beat("trigger", Duration::from_secs(60));
        health.beat("migrator", Duration::from_secs(10));
        pass(10).await;
        assert_eq!(health.alive(), Ok(()));
        pass(2).await;
        assert_eq!(health.alive(), Err("migrator has been silent for 12 s".to_owned()));
        pass(60).await;
        assert_eq!(
            health.alive(),
            Err("trigger has been silent for 72 s; migrator has been silent for 72 s".to_owned())
        );
        health.beat("trigger", Duration::from_secs(60));
        health.rests("migrator");
        assert_eq!(health.alive(), Ok(()));
    }

    #[test]
    fn readiness_says_what_it_waits_for() {
        let health = Health::default();
        assert_eq!(health.is_ready(), Err("waiting for its start".to_owned()));
        health.waits_for(format!("{} of 2 caches", 1));
        assert_eq!(health.is_ready(), Err("waiting for 1 of 2 caches".to_owned()));
        health.ready();
        assert_eq!(health.is_ready(), Ok(()));
    }
}
