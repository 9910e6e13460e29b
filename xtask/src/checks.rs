//! `cargo xtask checks`: what can be said of the workspace by reading its sources and manifests.

mod dependencies;
mod modules;

use anyhow::Result;

/// Runs all checks.
pub(crate) fn run() -> Result<()> {
    let workspace = dependencies::Workspace::read()?;
    let crates: Vec<_> =
        workspace.packages.iter().map(|package| (package.name.clone(), package.roots())).collect();
    modules::check(&crates)?;
    dependencies::check(&workspace)
}
