//! The cargo that runs a chore.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The cargo that runs this chore, in the environment that it was itself called in: build scripts run again when what
/// cargo says of a chore's own package changes, and then much is compiled again.
pub(crate) fn command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// What cargo prints to its standard output, for a command that must succeed.
pub(crate) fn output(args: &[&str]) -> Result<String> {
    let line = format!("cargo {}", args.join(" "));
    let output = command().args(args).output().with_context(|| line.clone())?;
    if !output.status.success() {
        bail!("{line} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{line} printed something that is not text"))
}
