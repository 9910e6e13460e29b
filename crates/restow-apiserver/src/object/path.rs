//! The path of a field in an object.
//!
//! A path borrows its keys and is formatted only when it is reported: a long key may have a million fields below it, and
//! each would copy it.

use std::collections::HashSet;
use std::fmt;

/// How many characters of a key are shown.
const MOST_KEY_LETTERS: usize = 512;
/// How many paths are collected.
const MOST_PATHS: usize = 1000;
/// How many bytes of paths are collected.
const MOST_PATH_BYTES: usize = 256 * 1024;

/// The path of a field.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path<'a> {
    within: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Step<'a> {
    /// The object itself.
    #[default]
    Root,
    /// `.key`
    Field(&'a str),
    /// `[key]`
    Key(&'a str),
    /// `[index]`
    Item(usize),
}

impl Path<'_> {
    pub(crate) fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }

    /// A field of an object: `.key`.
    pub(crate) fn field<'b>(&'b self, key: &'b str) -> Path<'b> {
        Path { within: Some(self), step: Step::Field(key) }
    }

    /// An entry of a map: `[key]`.
    pub(crate) fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        Path { within: Some(self), step: Step::Key(key) }
    }

    /// An item of a list: `[index]`.
    pub(crate) fn item(&self, index: usize) -> Path<'_> {
        Path { within: Some(self), step: Step::Item(index) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(within) = self.within {
            write!(f, "{within}")?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(key) => {
                let dot = if self.within.is_none_or(Path::is_root) { "" } else { "." };
                let (key, rest) = shortened(key);
                write!(f, "{dot}{key}{rest}")
            }
            Step::Key(key) => {
                let (key, rest) = shortened(key);
                write!(f, "[{key}{rest}]")
            }
            Step::Item(index) => write!(f, "[{index}]"),
        }
    }
}

/// The start of a long key, and an ellipsis.
fn shortened(key: &str) -> (&str, &str) {
    match key.char_indices().nth(MOST_KEY_LETTERS) {
        Some((end, _)) => (&key[..end], "…"),
        None => (key, ""),
    }
}

/// Collected paths, in order, without duplicates, and bounded.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    found: Vec<String>,
    seen: HashSet<String>,
    bytes: usize,
}

impl Paths {
    /// Adds a path, unless the limit is reached.
    pub(crate) fn push(&mut self, path: &Path<'_>) {
        if self.found.len() >= MOST_PATHS || self.bytes >= MOST_PATH_BYTES {
            return;
        }
        let path = path.to_string();
        // Duplicates count too: each was formatted.
        self.bytes += path.len();
        if self.seen.insert(path.clone()) {
            self.found.push(path);
        }
    }

    pub(crate) fn into_vec(self) -> Vec<String> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_kube_apiserver_writes_it() {
        let root = Path::default();
        let (spec, map) = (root.field("spec"), root.key("x"));
        let list = spec.field("list");
        let item = list.item(3);
        for (path, expected) in [
            (root, ""),
            (spec, "spec"),
            (map, "[x]"),
            (item, "spec.list[3]"),
            (item.field("a"), "spec.list[3].a"),
            (item.key("a"), "spec.list[3][a]"),
        ] {
            assert_eq!(path.to_string(), expected);
        }
    }

    #[test]
    fn long_keys_are_cut() {
        let (root, key) = (Path::default(), "é".repeat(600));
        let long = root.field(&key);
        assert_eq!(long.field("a").to_string(), format!("{}….a", "é".repeat(MOST_KEY_LETTERS)));
    }

    #[test]
    fn paths_are_collected_once_and_not_without_end() {
        let mut paths = Paths::default();
        let (root, long) = (Path::default(), "x".repeat(MOST_KEY_LETTERS));
        paths.push(&root.field("a"));
        paths.push(&root.field("a"));
        assert_eq!(paths.found, ["a"]);
        (0..10_000).for_each(|index| paths.push(&root.item(index)));
        assert_eq!(paths.found.len(), MOST_PATHS);
        let (mut paths, long) = (Paths::default(), root.field(&long));
        (0..10_000).for_each(|index| paths.push(&long.item(index)));
        assert!(paths.found.len() < MOST_PATHS, "{}", paths.found.len());
    }
}
