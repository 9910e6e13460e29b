//! The graph of owners and dependents, by their keys.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

/// An ownerReference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The key of the owner.
    pub(super) owner: Arc<str>,
    /// A digest of the uid that the owner must have.
    pub(super) uid: u64,
    /// Whether a foreground deletion of the owner waits for the object.
    pub(super) blocks: bool,
}

/// A digest of a uid, only for comparison.
pub(super) fn digest(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}

/// Owners and dependents, and which owners wait for their dependents.
#[derive(Debug, Default)]
pub(super) struct Graph {
    links: HashMap<Arc<str>, Box<[Link]>>,
    dependents: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    waiting: HashSet<Arc<str>>,
    /// The graph includes all changes up to this revision.
    pub(super) revision: u64,
}

impl Graph {
    /// The shared copy of a key, if an owner has it.
    pub(super) fn owner(&self, key: &str) -> Option<Arc<str>> {
        self.dependents.get_key_value(key).map(|(key, _)| Arc::clone(key))
    }

    /// Whether an object has owners.
    pub(super) fn is_owned(&self, key: &str) -> bool {
        self.links.contains_key(key)
    }

    /// Sets the owners of an object. Returns the keys to process: the object if its owners have changed, and waiting owners
    /// that it may no longer block.
    pub(super) fn set_owners(&mut self, key: &Arc<str>, links: Vec<Link>) -> Vec<Arc<str>> {
        let before = self.links.get(key);
        if before.map(|links| &**links).unwrap_or_default() == links {
            return Vec::new();
        }
        let mut affected = self.remove_owners(key);
        if !links.is_empty() {
            for link in &links {
                self.dependents.entry(Arc::clone(&link.owner)).or_default().insert(Arc::clone(key));
            }
            self.links.insert(Arc::clone(key), links.into());
            affected.push(Arc::clone(key));
        }
        affected
    }

    /// Removes the owners of an object. Returns waiting owners that it may no longer block.
    fn remove_owners(&mut self, key: &str) -> Vec<Arc<str>> {
        let Some(links) = self.links.remove(key) else { return Vec::new() };
        for link in &links {
            if let Some(dependents) = self.dependents.get_mut(&link.owner) {
                dependents.remove(key);
                if dependents.is_empty() {
                    self.dependents.remove(&link.owner);
                }
            }
        }
        let owners = links.iter().map(|link| &link.owner);
        owners.filter(|owner| self.waiting.contains(*owner)).cloned().collect()
    }

    /// Removes a deleted object. Returns the keys to process.
    pub(super) fn remove(&mut self, key: &str) -> Vec<Arc<str>> {
        self.waiting.remove(key);
        let mut affected = self.remove_owners(key);
        affected.extend(self.dependents.get(key).into_iter().flatten().cloned());
        affected
    }

    /// Sets whether an owner waits for its dependents. Returns the keys to process: the owner, and its dependents when it
    /// begins to wait.
    pub(super) fn set_waiting(&mut self, key: &Arc<str>, is_waiting: bool) -> Vec<Arc<str>> {
        if !is_waiting {
            self.waiting.remove(key);
            return Vec::new();
        }
        let begins = self.waiting.insert(Arc::clone(key));
        let dependents = self.dependents.get(key).filter(|_| begins);
        let mut affected: Vec<_> = dependents.into_iter().flatten().cloned().collect();
        affected.push(Arc::clone(key));
        affected
    }

    /// Whether an owner waits for its dependents.
    pub(super) fn is_waiting(&self, key: &str) -> bool {
        self.waiting.contains(key)
    }

    /// The dependents of an owner with a uid, and whether each blocks it.
    pub(super) fn dependents<'a>(
        &'a self,
        owner: &'a str,
        uid: u64,
    ) -> impl Iterator<Item = (&'a Arc<str>, bool)> {
        let link = move |key: &'a Arc<str>| {
            let links = self.links.get(key)?;
            let link = links.iter().find(|link| &*link.owner == owner && link.uid == uid)?;
            Some((key, link.blocks))
        };
        self.dependents.get(owner).into_iter().flatten().filter_map(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    fn link(owner: &str, uid: u64, blocks: bool) -> Link {
        Link { owner: key(owner), uid, blocks }
    }

    fn names(keys: &[Arc<str>]) -> Vec<&str> {
        keys.iter().map(|key| &**key).collect()
    }

    #[test]
    fn an_object_is_processed_when_its_owners_change() {
        let mut graph = Graph::default();
        assert_eq!(names(&graph.set_owners(&key("a"), vec![link("o", 1, false)])), ["a"]);
        assert_eq!(names(&graph.set_owners(&key("a"), vec![link("o", 1, false)])), [""; 0]);
        assert_eq!(names(&graph.set_owners(&key("a"), vec![link("o", 2, false)])), ["a"]);
        assert_eq!(names(&graph.set_owners(&key("a"), Vec::new())), [""; 0]);
        assert!(!graph.is_owned("a") && graph.owner("o").is_none());
    }

    #[test]
    fn dependents_are_processed_when_their_owner_is_gone() {
        let mut graph = Graph::default();
        graph.set_owners(&key("a"), vec![link("o", 1, false)]);
        graph.set_owners(&key("b"), vec![link("o", 1, false), link("p", 1, false)]);
        assert_eq!(names(&graph.remove("o")), ["a", "b"]);
        assert_eq!(names(&graph.remove("p")), ["b"]);
        assert_eq!(names(&graph.remove("q")), [""; 0]);
    }

    #[test]
    fn a_waiting_owner_is_processed_when_fewer_dependents_block_it() {
        let mut graph = Graph::default();
        graph.set_owners(&key("a"), vec![link("o", 1, true)]);
        graph.set_owners(&key("b"), vec![link("o", 1, true)]);
        assert_eq!(names(&graph.set_waiting(&key("o"), true)), ["a", "b", "o"]);
        assert_eq!(names(&graph.set_waiting(&key("o"), true)), ["o"]);
        assert_eq!(names(&graph.set_owners(&key("a"), vec![link("o", 1, false)])), ["o", "a"]);
        assert_eq!(names(&graph.remove("b")), ["o"]);
        graph.set_waiting(&key("o"), false);
        assert_eq!(names(&graph.remove("a")), [""; 0]);
    }

    #[test]
    fn only_references_with_the_uid_of_an_owner_count() {
        let mut graph = Graph::default();
        graph.set_owners(&key("a"), vec![link("o", 1, true)]);
        graph.set_owners(&key("b"), vec![link("o", 2, true)]);
        let found: Vec<_> = graph.dependents("o", 1).map(|(key, blocks)| (&**key, blocks)).collect();
        assert_eq!(found, [("a", true)]);
    }

    #[test]
    fn different_uids_have_different_digests() {
        assert_eq!(digest("a"), digest("a"));
        assert_ne!(digest("a"), digest("b"));
    }
}
