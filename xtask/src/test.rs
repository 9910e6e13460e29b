//! `cargo xtask test`: everything that must pass before a change lands, each command printed as it runs.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use restow_lab::Assets;

use crate::{bugs, cargo, checks};

/// Runs it all.
pub(crate) fn run() -> Result<()> {
    match Assets::find() {
        Ok(assets) => println!("lab: {}", assets.kube_apiserver.display()),
        Err(error) if std::env::var_os("CI").is_some_and(|ci| ci == "true") => {
            return Err(error).context("the real lab is needed here");
        }
        Err(error) => println!("NOT RUN: the scenarios on a real control plane: {error}"),
    }
    checks::run()?;
    step(&["fmt", "--all", "--check"])?;
    step(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    step(&["test", "--workspace"])?;
    bugs::run(&bugs::Bugs::default())
}

/// Twice as many tests at once as there are cores: scenarios wait for control planes most of the time.
fn threads() -> usize {
    2 * std::thread::available_parallelism().map_or(2, Into::into)
}

fn step(args: &[&str]) -> Result<()> {
    let line = format!("cargo {}", args.join(" "));
    println!("+ {line}");
    let began = Instant::now();
    let mut command = cargo::command();
    command.args(args);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", threads().to_string());
    }
    let status = command.status().with_context(|| line.clone())?;
    if !status.success() {
        bail!("{line} failed");
    }
    println!("  {line}: {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}
