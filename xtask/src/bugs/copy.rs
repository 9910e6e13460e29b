//! The copy of the sources that holds every bug.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::table::Bug;
use crate::cargo;

/// The environment variable that switches one bug on in the copy.
pub(super) const SWITCH: &str = "RESTOW_BUG";
/// What the workspace needs to be built.
const SOURCES: [&str; 6] = ["Cargo.toml", "Cargo.lock", "crates", "examples", "lab", "xtask"];
/// The version of the packages in the copy.
const COPY: &str = "0.0.0-bugs";
/// Stands in the wrong text for "this bug is switched on".
const SWITCHED_ON: &str = "BUG";

/// The root of the workspace.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The sources with all bugs written into them, by path; each has to fit exactly one place.
pub(super) fn mutate(root: &Path, bugs: &[Bug]) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    for bug in bugs {
        for edit in bug.edits {
            let path = PathBuf::from(edit.file);
            let text = match files.remove(&path) {
                Some(text) => text,
                None => fs::read(root.join(&path)).with_context(|| format!("reading {}", edit.file))?,
            };
            let text = String::from_utf8(text)?;
            let (found, name) = (text.matches(edit.right).count(), bug.name);
            if found != 1 {
                bail!(
                    "bug {name:?}: the source has changed: {} holds {:?} {found} times; update the table of bugs",
                    edit.file,
                    edit.right
                );
            }
            if !edit.wrong.contains(SWITCHED_ON) {
                bail!("bug {name:?} is always on: its wrong text does not say {SWITCHED_ON}");
            }
            let switched_on = format!("std::env::var(\"{SWITCH}\").is_ok_and(|bug| bug == \"{name}\")");
            let wrong = edit.wrong.replace(SWITCHED_ON, &switched_on);
            files.insert(path, text.replacen(edit.right, &wrong, 1).into_bytes());
        }
    }
    Ok(files)
}

/// Brings the copy up to date, builds its simulator, and says where that is.
///
/// It is built in the usual target directory and as `cargo test --workspace` does, so that no dependency is compiled
/// again.
pub(super) fn build(bugs: &[Bug]) -> Result<PathBuf> {
    let root = root();
    let target = target_directory(&root)?;
    let copy = target.join("bugs");
    let mut files = mutate(&root, bugs)?;
    for source in SOURCES {
        read(&root, Path::new(source), &mut files)?;
    }
    for manifest in ["Cargo.toml", "Cargo.lock"] {
        let text = files.remove(Path::new(manifest)).with_context(|| format!("there is no {manifest}"))?;
        let text = with_version(&String::from_utf8(text)?, env!("CARGO_PKG_VERSION"));
        files.insert(manifest.into(), text.into_bytes());
    }
    update(&copy, &files)?;
    println!("+ building the simulator with {} bugs in {}", bugs.len(), copy.display());
    let mut cargo = cargo::command();
    cargo.args([
        "test",
        "--workspace",
        "--test",
        "seeds",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    cargo.arg("--manifest-path").arg(copy.join("Cargo.toml")).arg("--target-dir").arg(&target);
    let output = cargo.output().context("building the copy")?;
    if !output.status.success() {
        bail!("the copy with the bugs does not compile:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let built = String::from_utf8_lossy(&output.stdout).lines().find_map(executable);
    let built = built.context("cargo built no simulator")?;
    // The next build of the workspace puts the right one in its place.
    let simulator = copy.join("simulator");
    fs::copy(&built, &simulator).with_context(|| format!("copying {built}"))?;
    Ok(simulator)
}

/// A manifest or lock file whose own packages have the version of the copy.
///
/// Cargo tells packages apart by name, version and place in their workspace. With one version, what is built of the copy
/// would take the place of what is built of the sources, and count as up to date whatever is changed in them.
fn with_version(manifest: &str, version: &str) -> String {
    let own = |package: &str| {
        if package.contains("\nsource = ") {
            return package.to_owned();
        }
        let version = format!("\nversion = \"{version}\"");
        package.replacen(&version, &format!("\nversion = \"{COPY}\""), 1)
    };
    manifest.split("\n\n").map(own).collect::<Vec<_>>().join("\n\n")
}

fn target_directory(root: &Path) -> Result<PathBuf> {
    let output = cargo::command()
        .args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .output()
        .context("asking cargo for its target directory")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    Ok(metadata["target_directory"].as_str().context("cargo names no target directory")?.into())
}

/// The simulator, if this message of cargo's says where it is.
fn executable(message: &str) -> Option<String> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_it = message["target"]["name"] == "restow-sim" && message["profile"]["test"] == false;
    message["executable"].as_str().filter(|_| is_it).map(str::to_owned)
}

/// Reads what is not yet there.
fn read(root: &Path, path: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    let at = root.join(path);
    if at.is_dir() {
        for entry in fs::read_dir(&at).with_context(|| format!("reading {}", at.display()))? {
            read(root, &path.join(entry?.file_name()), files)?;
        }
    } else if !files.contains_key(path) {
        files.insert(path.to_owned(), fs::read(&at).with_context(|| format!("reading {}", at.display()))?);
    }
    Ok(())
}

/// Makes a folder hold these files. What is as it should be is left alone, so that cargo does not build it again.
fn update(copy: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    let mut kept = BTreeSet::new();
    for (path, content) in files {
        let at = copy.join(path);
        kept.insert(at.clone());
        if fs::read(&at).is_ok_and(|now| now == *content) {
            continue;
        }
        if let Some(folder) = at.parent() {
            fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        fs::write(&at, content).with_context(|| format!("writing {}", at.display()))?;
    }
    for source in SOURCES.iter().filter(|source| copy.join(source).is_dir()) {
        remove_others(&copy.join(source), &kept)?;
    }
    Ok(())
}

fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let at = entry?.path();
        if at.is_dir() {
            remove_others(&at, kept)?;
        } else if !kept.contains(&at) {
            fs::remove_file(&at).with_context(|| format!("removing {}", at.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_copy_have_a_version_of_their_own() {
        for (manifest, expected) in [
            (
                "[workspace]\nmembers = []\n\n[workspace.package]\nversion = \"0.1.0\"\nedition = \"2024\"\n",
                "[workspace]\nmembers = []\n\n[workspace.package]\nversion = \"0.0.0-bugs\"\nedition = \"2024\"\n",
            ),
            (
                "[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\nsource = \"registry\"\n",
                "[[package]]\nname = \"own\"\nversion = \"0.0.0-bugs\"\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\nsource = \"registry\"\n",
            ),
        ] {
            assert_eq!(with_version(manifest, "0.1.0"), expected);
        }
    }
}
