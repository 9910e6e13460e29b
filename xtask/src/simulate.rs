//! `cargo xtask simulate`: builds the simulator with optimisation, and runs it.

use anyhow::{Context, Result, bail};
use clap::Args;

/// What to simulate.
#[derive(Args)]
pub(crate) struct Simulate {
    /// What the simulator takes; `-- --help` tells.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
    /// Without optimisation, which is built sooner and runs longer.
    #[arg(long)]
    debug: bool,
}

/// Runs the simulator.
pub(crate) fn run(simulate: &Simulate) -> Result<()> {
    let mut command = crate::cargo();
    command.args(["run", "--quiet", "--package", "restow-sim"]);
    if !simulate.debug {
        command.arg("--release");
    }
    let status = command.arg("--").args(&simulate.args).status().context("running the simulator")?;
    if !status.success() {
        bail!("a seed fails");
    }
    Ok(())
}
