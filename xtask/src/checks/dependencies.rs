//! Dependencies: none that is banned, none that is unused, and no client below the core.
//!
//! Read here rather than by a tool, which each machine would first have to install.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use serde::Deserialize;

use crate::cargo;

/// Crates that would make a plain machine with a C compiler unable to build restow; deny.toml says the same.
const BANNED: [&str; 4] = ["openssl-sys", "aws-lc-sys", "cmake", "prost-build"];
/// Dependencies that need no mention in a source: kube needs one that chooses a version of Kubernetes.
const FOR_THEIR_FEATURES: [&str; 1] = ["k8s-openapi"];
/// What `restow-core` must not reach: its decisions know no client, no network and no runtime.
const CLIENT: [&str; 6] = ["kube-client", "hyper", "tower", "tokio", "rustls", "reqwest"];

/// The packages of the workspace, as `cargo metadata` describes them.
#[derive(Deserialize)]
pub(super) struct Workspace {
    pub(super) packages: Vec<Package>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    rename: Option<String>,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

impl Workspace {
    /// Asks cargo.
    pub(super) fn read() -> Result<Self> {
        let text = cargo::output(&["metadata", "--format-version", "1", "--no-deps", "--locked"])?;
        serde_json::from_str(&text).context("reading the answer of cargo metadata")
    }
}

impl Package {
    /// The root files of its library and its programs.
    pub(super) fn roots(&self) -> Vec<PathBuf> {
        let built = |target: &&Target| target.kind.iter().any(|kind| ["lib", "bin"].contains(&kind.as_str()));
        self.targets.iter().filter(built).map(|target| target.src_path.clone()).collect()
    }
}

/// Checks everything.
pub(super) fn check(workspace: &Workspace) -> Result<()> {
    let root = &workspace.workspace_root;
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
    for name in BANNED {
        if lock.contains(&format!("name = \"{name}\"\n")) {
            bail!("{name} is banned (deny.toml) and in Cargo.lock");
        }
    }
    println!("+ no banned crate in Cargo.lock: {}", BANNED.join(", "));

    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("reading Cargo.toml")?;
    let mut unused = unused_in_workspace(&manifest, workspace);
    for package in &workspace.packages {
        unused.extend(unused_in_package(package)?);
    }
    if !unused.is_empty() {
        bail!("dependencies are declared and not used:\n{}", unused.join("\n"));
    }
    println!("+ every declared dependency is used");

    let tree = cargo::output(&["tree", "-p", "restow-core", "-e", "normal", "--prefix", "none", "--locked"])?;
    let reached: Vec<&str> = reached(&tree, &CLIENT);
    if !reached.is_empty() {
        bail!(
            "restow-core must reach no client and reaches {} (cargo tree -p restow-core -e normal)",
            reached.join(", ")
        );
    }
    println!("+ restow-core reaches none of {}", CLIENT.join(", "));
    Ok(())
}

/// Those of some crates that are in the output of `cargo tree --prefix none`.
fn reached<'a>(tree: &str, crates: &[&'a str]) -> Vec<&'a str> {
    let found: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    crates.iter().copied().filter(|name| found.contains(name)).collect()
}

/// Dependencies of the workspace that no package takes.
fn unused_in_workspace(manifest: &str, workspace: &Workspace) -> Vec<String> {
    let taken: BTreeSet<&str> = workspace
        .packages
        .iter()
        .flat_map(|package| &package.dependencies)
        .map(|dependency| dependency.rename.as_ref().unwrap_or(&dependency.name).as_str())
        .collect();
    let declared = workspace_dependencies(manifest).into_iter();
    declared.filter(|name| !taken.contains(name)).map(|name| format!("{name} in the workspace")).collect()
}

/// The names in the table `workspace.dependencies` of a manifest.
fn workspace_dependencies(manifest: &str) -> Vec<&str> {
    let mut lines = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let table = lines.by_ref().take_while(|line| !line.starts_with('['));
    table
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name)
        .filter(|name| !name.contains('#'))
        .collect()
}

/// Dependencies of a package that its sources do not name.
fn unused_in_package(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
    let mut shipped = BTreeSet::new();
    for root in ["src", "build.rs"] {
        crates_named(&folder.join(root), &mut shipped)?;
    }
    let mut tested = shipped.clone();
    for root in ["tests", "benches", "examples"] {
        crates_named(&folder.join(root), &mut tested)?;
    }
    let mut unused = Vec::new();
    for dependency in &package.dependencies {
        let name = dependency.rename.as_ref().unwrap_or(&dependency.name);
        let named = if dependency.kind.as_deref() == Some("dev") { &tested } else { &shipped };
        if !named.contains(&name.replace('-', "_")) && !FOR_THEIR_FEATURES.contains(&name.as_str()) {
            unused.push(format!("{name} in {}", package.name));
        }
    }
    Ok(unused)
}

/// Adds the names that may be crates in all sources below a path: those with `::` after them, or `use` before.
fn crates_named(path: &Path, found: &mut BTreeSet<String>) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(|| format!("reading {}", path.display()))? {
            crates_named(&entry?.path(), found)?;
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") && path.is_file() {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let tokens: TokenStream =
            text.parse().map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        names_in(tokens, found);
    }
    Ok(())
}

fn names_in(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: Option<usize>, text: &str| {
        at.and_then(|at| tokens.get(at)).is_some_and(|token: &TokenTree| token.to_string() == text)
    };
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => names_in(group.stream(), found),
            TokenTree::Ident(ident) => {
                let is_path = is(Some(at + 1), ":") && is(Some(at + 2), ":");
                let is_inner = is(at.checked_sub(1), ":") && is(at.checked_sub(2), ":") && at > 2;
                let is_inner = is_inner && matches!(tokens[at - 3], TokenTree::Ident(_));
                if (is_path && !is_inner) || is(at.checked_sub(1), "use") {
                    found.insert(ident.to_string());
                }
            }
            // Documentation: its examples use crates too.
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let words = text
                    .split("::")
                    .filter_map(|before| before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next());
                if text.contains("::") {
                    found.extend(words.map(str::to_owned));
                }
            }
            TokenTree::Punct(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{names_in, reached, workspace_dependencies};

    #[test]
    fn a_crate_is_named_by_a_path_or_an_import() {
        for (source, expected) in [
            ("use serde_json::Value;", true),
            ("use serde_json;", true),
            ("fn f() { serde_json::to_string(&1); }", true),
            ("fn f() { println!(\"{}\", serde_json::json!({})); }", true),
            ("#[derive(serde_json::Derive)] struct S;", true),
            ("/// ```\n/// serde_json::to_string(&1);\n/// ```\nfn f() {}", true),
            ("use crate::serde_json::Value;", false),
            ("// serde_json::Value\nfn serde_json() { serde_json() }", false),
            ("/// With serde_json.\nfn f() {}", false),
        ] {
            let mut found = BTreeSet::new();
            names_in(source.parse().unwrap(), &mut found);
            assert_eq!(found.contains("serde_json"), expected, "{source}: {found:?}");
        }
    }

    #[test]
    fn the_workspace_table_ends_where_the_next_one_begins() {
        let manifest = "[workspace]\nmembers = []\n[workspace.dependencies]\na = \"1\"\n# b = \"2\"\n\
                        c = { version = \"1\" }\n\n[profile.dev]\ndebug = false\n";
        assert_eq!(workspace_dependencies(manifest), ["a", "c"]);
    }

    #[test]
    fn crates_are_found_in_a_tree_by_their_whole_name() {
        let tree = "restow-core v0.1.0 (…)\ntokio-util v0.7.1\nhyper v1.0.0 (*)\n";
        assert_eq!(reached(tree, &["tokio", "hyper"]), ["hyper"]);
    }
}
