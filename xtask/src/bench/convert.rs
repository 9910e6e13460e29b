//! `cargo xtask bench-convert`: how long a review takes, measured by the benchmark of `restow-convert`.

use anyhow::{Context, Result, ensure};

/// Runs the benchmark.
pub(crate) fn run() -> Result<()> {
    let mut command = crate::cargo::command();
    command.args(["bench", "--quiet", "--package", "restow-convert", "--bench", "review"]);
    ensure!(command.status().context("starting cargo")?.success(), "the benchmark failed");
    Ok(())
}
