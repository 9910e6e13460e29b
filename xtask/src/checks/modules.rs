//! No crate has a cycle between its modules: a reader can take them one after the other.
//!
//! A module uses another one when a path in its source leads there. A file that only declares and re-exports is not a
//! module of its own here: a path through it leads to what it re-exports. Code for tests does not count.

mod source;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use anyhow::{Context as _, Result, bail};

use source::{Names, Tree};

/// Requires that no crate has a cycle between its modules.
pub(super) fn check(crates: &[(String, Vec<PathBuf>)]) -> Result<()> {
    let mut wrong = Vec::new();
    for (name, roots) in crates {
        for root in roots {
            let cycles = find(&source::read(root, &read)?);
            wrong.extend(cycles.iter().map(|cycle| format!("modules of {name} form a cycle: {cycle}")));
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    println!("+ no crate has a cycle between its modules");
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Modules that use each other, directly or through others of them.
#[derive(Debug, PartialEq, Eq)]
struct Cycle {
    modules: Vec<String>,
    /// Who uses whom, and the path that says so.
    uses: Vec<(String, String, String)>,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.modules.join(", "))?;
        for (from, to, path) in &self.uses {
            write!(f, "\n  {from} uses {to}: {path}")?;
        }
        Ok(())
    }
}

/// The name of a module as it is printed.
fn name(module: &Names) -> String {
    if module.is_empty() { "crate".to_owned() } else { module.join("::") }
}

/// The cycles between the modules of a tree.
fn find(tree: &Tree) -> Vec<Cycle> {
    let uses = uses(tree);
    let reached: BTreeMap<&Names, BTreeSet<&Names>> =
        uses.keys().map(|module| (module, reach(&uses, module))).collect();
    let together =
        |a: &Names, b: &Names| reached[a].contains(b) && reached.get(b).is_some_and(|r| r.contains(a));
    let mut cycles = Vec::new();
    let mut seen = BTreeSet::new();
    for module in uses.keys() {
        if seen.contains(module) || !together(module, module) {
            continue;
        }
        let members: BTreeSet<&Names> = uses.keys().filter(|other| together(module, other)).collect();
        let within = |from: &Names| {
            let inside = uses[from].iter().filter(|(to, _)| members.contains(to));
            inside.map(|(to, path)| (name(from), name(to), path.clone())).collect::<Vec<_>>()
        };
        cycles.push(Cycle {
            modules: members.iter().map(|member| name(member)).collect(),
            uses: members.iter().flat_map(|member| within(member)).collect(),
        });
        seen.extend(members);
    }
    cycles
}

/// For each module those that it uses, each with the first path that leads there.
fn uses(tree: &Tree) -> BTreeMap<Names, BTreeMap<Names, String>> {
    let mut uses = BTreeMap::new();
    for (from, module) in tree.modules() {
        let mut used = BTreeMap::new();
        for path in &module.paths {
            let Some(to) = tree.resolve(from, path) else { continue };
            if *from != to {
                used.entry(to).or_insert_with(|| path.join("::"));
            }
        }
        if !module.only_re_exports() {
            uses.insert(from.clone(), used);
        }
    }
    uses
}

/// All modules that can be reached from one.
fn reach<'a>(uses: &'a BTreeMap<Names, BTreeMap<Names, String>>, from: &Names) -> BTreeSet<&'a Names> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Names> = uses[from].keys().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(uses.get(module).into_iter().flat_map(BTreeMap::keys));
        }
    }
    reached
}
