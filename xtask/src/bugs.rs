//! `cargo xtask bugs`: puts known defects back, one at a time, and requires the simulation to catch each of them.
//!
//! The sources are copied, and every mutation of the [table](table::BUGS) is written into the copy, where an environment
//! variable switches it on. One build of the copy holds all bugs, and the sources themselves hold none.

mod copy;
mod table;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use table::{BUGS, Bug};

/// Which bugs to try.
#[derive(Args, Default)]
pub(crate) struct Bugs {
    /// Only these, by name; all when none is given.
    names: Vec<String>,
    /// Run the simulator with one bug and these arguments instead, for example `-- --seed 7 --dense`.
    #[arg(last = true)]
    args: Vec<String>,
}

/// How many seeds have to pass with no bug switched on, besides every seed that catches one.
const SOUND: u64 = 12;

/// A seed that violates an invariant.
struct Violation {
    seed: u64,
    invariant: String,
    what: String,
}

/// Builds the copy and tries the bugs.
pub(crate) fn run(bugs: &Bugs) -> Result<()> {
    let chosen = choose(&bugs.names)?;
    let simulator = copy::build(BUGS)?;
    if !bugs.args.is_empty() {
        let [bug] = chosen[..] else { bail!("name one bug to run the simulator with") };
        let status =
            command(&simulator, Some(bug)).args(&bugs.args).status().context("running the simulator")?;
        println!("the simulator ended with {status}");
        return Ok(());
    }
    if let Some(found) = violations(&simulator, None, &[], 0, SOUND)?.next().transpose()? {
        bail!(
            "with no bug switched on, seed {} violates {}: {}; fix that first (cargo xtask simulate --seed {})",
            found.seed,
            found.invariant,
            found.what,
            found.seed
        );
    }
    let began = Instant::now();
    let missed = try_all(&simulator, &chosen)?;
    println!("{} bugs were tried in {:.0} s", chosen.len(), began.elapsed().as_secs_f64());
    if !missed.is_empty() {
        bail!("not caught: {}", missed.join(", "));
    }
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Bug>> {
    if names.is_empty() {
        return Ok(BUGS.iter().collect());
    }
    let find = |name: &String| {
        BUGS.iter().find(|bug| bug.name == name).with_context(|| format!("the table has no bug {name:?}"))
    };
    names.iter().map(find).collect()
}

/// Tries bugs on all cores, prints what became of each, and returns the names of those that were not caught.
fn try_all(simulator: &Path, bugs: &[&'static Bug]) -> Result<Vec<&'static str>> {
    let queue = Mutex::new(bugs.iter());
    let missed = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(bug) = next else { return Ok(()) };
            let began = Instant::now();
            let plans = bug.plans().join(" ");
            let name = bug.name;
            let seconds = |began: Instant| began.elapsed().as_secs_f64();
            match catch(simulator, bug)? {
                Some(found) => {
                    println!(
                        "{name}: {}\n  caught by seed {} of {} in {:.1} s: {}: {}\n  cargo xtask bugs {name} -- --seed {} {plans}",
                        bug.what,
                        found.seed,
                        bug.seeds,
                        seconds(began),
                        found.invariant,
                        found.what,
                        found.seed
                    );
                }
                None => {
                    println!(
                        "{name}: {}\n  NOT CAUGHT within {} seeds in {:.1} s; {} was expected\n  cargo xtask bugs {name} -- --seeds {} --keep-going {plans}",
                        bug.what,
                        bug.seeds,
                        seconds(began),
                        bug.invariant,
                        bug.seeds
                    );
                    missed.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(done) => done,
            Err(_) => bail!("a worker panicked"),
        })
    })?;
    Ok(missed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The first seed that violates the expected invariant with the bug, and passes without it.
fn catch(simulator: &Path, bug: &'static Bug) -> Result<Option<Violation>> {
    let plans = bug.plans();
    for found in violations(simulator, Some(bug), &plans, 0, bug.seeds)? {
        let found = found?;
        if found.invariant != bug.invariant {
            continue;
        }
        // A seed that fails anyway shows nothing.
        if violations(simulator, None, &plans, found.seed, 1)?.next().transpose()?.is_none() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn command(simulator: &Path, bug: Option<&Bug>) -> Command {
    let mut command = Command::new(simulator);
    command.env_remove(copy::SWITCH);
    if let Some(bug) = bug {
        command.env(copy::SWITCH, bug.name);
    }
    command
}

/// The violations of some seeds, as they are found; the simulator ends with what is returned.
fn violations(
    simulator: &Path,
    bug: Option<&Bug>,
    plans: &[&str],
    from: u64,
    seeds: u64,
) -> Result<Violations> {
    let mut command = command(simulator, bug);
    command.args(["--keep-going", "--from", &from.to_string(), "--seeds", &seeds.to_string()]);
    command.args(plans);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("running the simulator")?;
    let lines = child.stdout.take().context("the simulator's output")?;
    Ok(Violations { child, lines: BufReader::new(lines).lines(), ended: false })
}

struct Violations {
    child: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    ended: bool,
}

impl Iterator for Violations {
    type Item = Result<Violation>;

    fn next(&mut self) -> Option<Self::Item> {
        for line in self.lines.by_ref() {
            match line.context("reading the simulator's output") {
                Ok(line) if line.contains(" seeds in ") => self.ended = true,
                Ok(line) => {
                    if let Some(found) = violation(&line) {
                        return Some(Ok(found));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
        // Without its last line, it has not run all of its seeds.
        let ended = std::mem::replace(&mut self.ended, true);
        (!ended).then(|| Err(anyhow::anyhow!("the simulator did not come to its end")))
    }
}

impl Drop for Violations {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads `seed 7 (single): S2: what happened`.
fn violation(line: &str) -> Option<Violation> {
    let (seed, rest) = line.strip_prefix("seed ")?.split_once(' ')?;
    let (_, rest) = rest.split_once("): ")?;
    let (invariant, what) = rest.split_once(": ")?;
    Some(Violation { seed: seed.parse().ok()?, invariant: invariant.to_owned(), what: what.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_simulator_is_read() {
        let found = violation("seed 7 (single): S2: verified for v2 while x: y is stored as v1");
        let found = found.map(|found| (found.seed, found.invariant, found.what));
        let what = "verified for v2 while x: y is stored as v1";
        assert_eq!(found, Some((7, "S2".to_owned(), what.to_owned())));
        assert!(violation("  single: 12 runs, violated: {}").is_none());
    }

    #[test]
    fn every_bug_fits_the_sources() {
        let names: std::collections::BTreeSet<_> = BUGS.iter().map(|bug| bug.name).collect();
        assert_eq!(names.len(), BUGS.len(), "every bug has a name of its own");
        copy::mutate(&copy::root(), BUGS).unwrap();
    }
}
