//! `cargo xtask simulate`: builds the simulator, and runs it.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cargo;

/// What to simulate.
#[derive(Args)]
pub(crate) struct Simulate {
    /// What the simulator takes; `-- --help` tells.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
    /// Without optimisation, which is built sooner and runs longer.
    #[arg(long)]
    debug: bool,
    /// On real control planes, with kube-apiserver, etcd and the restow binary.
    #[arg(long)]
    real: bool,
}

/// Runs the simulator.
pub(crate) fn run(simulate: &Simulate) -> Result<()> {
    let mut command = cargo::command();
    // What follows an option of the simulator is all the simulator's.
    if simulate.real || simulate.args.iter().any(|arg| arg == "--real") {
        let built = ["build", "--quiet", "--package", "restow", "--package", "restow-sim", "--bins"];
        if !cargo::command().args(built).status().context("building restow")?.success() {
            bail!("restow does not build");
        }
        // They are built into the folder this program was built into.
        let program = std::env::current_exe()?;
        command = Command::new(program.with_file_name("restow-sim"));
        command.arg("--real").arg("--restow").arg(program.with_file_name("restow"));
    } else {
        command.args(["run", "--quiet", "--package", "restow-sim"]);
        if !simulate.debug {
            command.arg("--release");
        }
        command.arg("--");
    }
    let args = simulate.args.iter().filter(|arg| *arg != "--real");
    let status = command.args(args).status().context("running the simulator")?;
    if !status.success() {
        bail!("a seed fails");
    }
    Ok(())
}
