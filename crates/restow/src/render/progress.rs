//! The progress of a run on stderr: bars on a terminal, plain lines elsewhere.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use restow_clock::Instant;
use restow_core::rewrite::estimate::time_left;
use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::progress::{Counts, Phase, Progress};
use restow_migrate::client::Throttle;
use restow_migrate::list::Waiting;
use restow_migrate::migration::Observer;

use crate::output::say;
use crate::render::text::{count, counted, time};

/// How often a line is written without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Shorter waits are not printed.
const WORTH_TELLING: Duration = Duration::from_secs(1);

/// The view of one resource's migration.
pub(crate) struct ProgressView<'a> {
    name: String,
    throttle: &'a Throttle,
    bar: Option<ProgressBar>,
    dry_run: bool,
    state: Mutex<State>,
}

struct State {
    began: Instant,
    at_start: u64,
    decided: u64,
    expected: Option<u64>,
    doing: &'static str,
    last_line: Instant,
    last_wait: Option<Instant>,
}

impl<'a> ProgressView<'a> {
    pub(crate) fn new(name: String, throttle: &'a Throttle, dry_run: bool) -> Self {
        // Log lines would break a bar.
        let bar = (std::io::stderr().is_terminal() && !tracing::enabled!(tracing::Level::INFO)).then(|| {
            // Nothing is drawn before the first pass.
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            bar.set_style(style());
            bar.set_prefix(name.clone());
            bar
        });
        let now = Instant::now();
        let state = State {
            began: now,
            at_start: 0,
            decided: 0,
            expected: None,
            doing: "starting",
            last_line: now,
            last_wait: None,
        };
        Self { name, throttle, bar, dry_run, state: Mutex::new(state) }
    }

    /// Removes the bar before the summary.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Prints a message above the bar.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say!("{}: {text}", self.name)),
            None => say!("{}: {text}", self.name),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn show(&self, state: &mut State) {
        let pace = Pace::of(state);
        if let Some(bar) = &self.bar {
            bar.set_position(state.decided);
            bar.set_message(bar_message(state, &pace, self.throttle.limit()));
        } else if state.last_line.elapsed() >= LINE_EVERY {
            state.last_line = Instant::now();
            say!("{}: {}", self.name, progress_line(state, &pace));
        }
    }
}

/// The rate of a pass, and how long it will take.
struct Pace {
    rate: f64,
    left: Option<Duration>,
}

impl Pace {
    fn of(state: &State) -> Self {
        let done = state.decided - state.at_start;
        let spent = state.began.elapsed();
        let left = state.expected.and_then(|all| time_left(done, all.saturating_sub(state.decided), spent));
        Self { rate: done as f64 / spent.as_secs_f64().max(0.001), left }
    }
}

impl std::fmt::Display for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let left = self.left.map(|left| format!(", {} left", time(left))).unwrap_or_default();
        write!(f, "{:.0}/s{left}", self.rate)
    }
}

/// The text after the bar.
fn bar_message(state: &State, pace: &Pace, in_flight: f64) -> String {
    if state.expected.is_some_and(|all| state.decided >= all) {
        format!("{}: checking for remaining objects, and that the API servers still agree", state.doing)
    } else {
        format!("{} {pace}, {in_flight:.0} in flight", state.doing)
    }
}

/// The line for the progress of a pass.
fn progress_line(state: &State, pace: &Pace) -> String {
    let of = state.expected.map(|all| format!(" of {}", count(all))).unwrap_or_default();
    format!("{} {}{of}, {pace}", state.doing, count(state.decided))
}

/// The line for the beginning of a pass.
fn pass_line(doing: &str, progress: &Progress) -> String {
    let of = progress.expected.map(|all| format!(" {}", counted(all, "object"))).unwrap_or_default();
    let basis = progress.basis.map(|basis| format!(", agreement {basis}")).unwrap_or_default();
    format!("{doing}{of}{basis}")
}

/// The line for a pass that is resumed.
pub(crate) fn resuming_line(done: u64) -> String {
    format!("resuming; {} already done", counted(done, "object"))
}

/// The line for rewritten objects that no count includes.
fn uncounted_line(rewritten: u64) -> String {
    let (were, are) = if rewritten == 1 { ("object was", "is") } else { ("objects were", "are") };
    format!("{} more {were} rewritten and {are} checked again when the run is resumed", count(rewritten))
}

fn settling_line(wait: Duration) -> String {
    format!("the CRD just changed; waiting {} s for all servers to pick it up", wait.as_secs_f64().ceil())
}

fn waiting_line(why: &str) -> String {
    format!("waiting: {why} (ctrl-C is safe)")
}

/// What a pass does to objects.
fn doing(phase: Phase, dry_run: bool) -> &'static str {
    match phase {
        _ if dry_run => "dry run of",
        Phase::Rewriting => "rewriting",
        Phase::Verifying | Phase::Done => "verifying",
    }
}

fn style() -> ProgressStyle {
    let template = "{spinner} {prefix:.bold} {wide_bar:.cyan/dim} {human_pos}/{human_len} {msg}";
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─")
}

impl Waiting for ProgressView<'_> {
    fn waiting(&self, why: &str, wait: Duration) {
        tracing::info!(resource = self.name, ?wait, "waiting: {why}");
        let mut state = self.state();
        let often = state.last_wait.is_some_and(|last| last.elapsed() < LINE_EVERY);
        if wait >= WORTH_TELLING && !often {
            state.last_wait = Some(Instant::now());
            drop(state);
            self.say(&waiting_line(why));
        }
    }
}

impl Observer for ProgressView<'_> {
    fn uncounted(&self, rewritten: u64) {
        self.say(&uncounted_line(rewritten));
    }

    fn settling(&self, wait: Duration) {
        self.say(&settling_line(wait));
    }

    fn pass(&self, progress: &Progress) {
        let (hash, mark) = (&progress.storage_version_hash, progress.mark.as_deref().unwrap_or_default());
        tracing::info!(resource = self.name, hash, mark, pass = progress.passes + 1, "a pass begins");
        let mut state = self.state();
        let done = progress.pass().done();
        state.began = Instant::now();
        state.last_line = state.began;
        state.at_start = done;
        state.decided = done;
        state.expected = progress.expected;
        state.doing = doing(progress.phase, self.dry_run);
        if let Some(bar) = &self.bar {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
            // The bar also moves while no object is decided.
            bar.enable_steady_tick(Duration::from_millis(125));
            bar.set_length(progress.expected.unwrap_or(done));
        } else {
            say!("{}: {}", self.name, pass_line(state.doing, progress));
        }
        self.show(&mut state);
    }

    fn decided(&self, outcome: &Outcome) {
        if let Outcome::Quarantined { reason, message } = outcome {
            tracing::info!(resource = self.name, reason, "an object is quarantined: {message}");
        }
        let mut state = self.state();
        state.decided += 1;
        self.show(&mut state);
    }

    fn page(&self, progress: &Progress) {
        let Counts { listed, rewritten, current, conflicted, gone, quarantined, .. } = *progress.pass();
        tracing::info!(
            resource = self.name,
            listed,
            rewritten,
            current,
            conflicted,
            gone,
            quarantined,
            "a page is done"
        );
        let mut state = self.state();
        state.decided = progress.pass().done();
        if let (Some(bar), Some(expected)) = (&self.bar, progress.expected) {
            bar.set_length(expected.max(state.decided));
        }
        self.show(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use restow_core::agreement::basis::Basis;
    use restow_core::resource::name::GroupResource;

    use super::*;

    #[test]
    fn a_dry_run_rewrites_nothing() {
        for (phase, dry_run, expected) in [
            (Phase::Rewriting, false, "rewriting"),
            (Phase::Verifying, false, "verifying"),
            (Phase::Rewriting, true, "dry run of"),
            (Phase::Done, true, "dry run of"),
        ] {
            assert_eq!(doing(phase, dry_run), expected);
        }
    }

    #[test]
    fn progress_lines_are_as_reviewed() {
        let now = Instant::now();
        let mut state = State {
            began: now,
            at_start: 0,
            decided: 420,
            expected: Some(1000),
            doing: "rewriting",
            last_line: now,
            last_wait: None,
        };
        let mut progress = Progress::new(GroupResource::parse("secrets"), "v1", "x", Timestamp::default());
        progress.basis = Some(Basis::Direct);
        progress.expected = Some(1000);
        let pace = Pace { rate: 126.0, left: Some(Duration::from_secs(5)) };
        let mut lines = vec![
            settling_line(Duration::from_secs(6)),
            waiting_line("api-2 does not answer"),
            resuming_line(1),
            resuming_line(800),
            pass_line("rewriting", &progress),
            progress_line(&state, &pace),
            bar_message(&state, &pace, 1.0),
        ];
        state.decided = 1000;
        lines.push(bar_message(&state, &pace, 1.0));
        crate::snapshots::check("progress", &(lines.join("\n") + "\n"));
    }
}
