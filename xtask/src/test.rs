//! `cargo xtask test`: everything that must pass before a change lands, each command printed as it runs.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use restow_lab::Assets;

/// Crates that would make a plain machine with a C compiler unable to build restow; deny.toml says the same.
const BANNED: [&str; 4] = ["openssl-sys", "aws-lc-sys", "cmake", "prost-build"];

/// Runs it all.
pub(crate) fn run() -> Result<()> {
    match Assets::find() {
        Ok(assets) => println!("lab: {}", assets.kube_apiserver.display()),
        Err(error) if std::env::var_os("CI").is_some_and(|ci| ci == "true") => {
            return Err(error).context("the real lab is needed here");
        }
        Err(error) => println!("NOT RUN: the scenarios on a real control plane: {error}"),
    }
    banned()?;
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    cargo(&["test", "--workspace"])?;
    crate::bugs::run(&crate::bugs::Bugs::default())
}

fn cargo(args: &[&str]) -> Result<()> {
    let line = format!("cargo {}", args.join(" "));
    println!("+ {line}");
    let began = Instant::now();
    let status = crate::cargo().args(args).status().with_context(|| line.clone())?;
    if !status.success() {
        bail!("{line} failed");
    }
    println!("  {line}: {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// The dependency graph, without the help of a tool that would first have to be installed.
fn banned() -> Result<()> {
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");
    let lock = std::fs::read_to_string(lock).context("reading Cargo.lock")?;
    for name in BANNED {
        if lock.contains(&format!("name = \"{name}\"\n")) {
            bail!("{name} is banned (deny.toml) and in Cargo.lock");
        }
    }
    println!("+ no banned crate in Cargo.lock: {}", BANNED.join(", "));
    Ok(())
}
