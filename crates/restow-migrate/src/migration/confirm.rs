//! Makes sure that objects which seemed deleted or changed, by a look-up of their names, are not listed as before.
//!
//! An object may be stored under another key than its name. A write by its name reaches another object or none, and so
//! does a look-up, but lists show it for ever. Where in a list it comes is not known: API servers list from etcd in the
//! order of keys, and from their caches in the order of names. So all objects are listed once more, once for a pass.

use std::collections::HashMap;

use restow_core::rewrite::outcome::{Outcome, misplaced};
use restow_core::rewrite::progress::{Progress, Quarantined};

use super::setup::{Failure, Migration, Observer};
use crate::list::chunks::Chunks;
use crate::list::{Item, Target};
use crate::rewrite::page::quarantined;

/// How many objects are listed at once: two pages are in memory already.
const AT_ONCE: u32 = 50;
/// How many objects are looked for at once.
const OBJECTS: usize = 10_000;

/// The objects of a pass that seemed deleted or changed, by uid. Those that somebody has copied in etcd share one.
#[derive(Default)]
pub(crate) struct Elsewhere(HashMap<Box<str>, Vec<(Item, Outcome)>>);

impl Elsewhere {
    /// Takes in those of a page.
    pub(crate) fn add(&mut self, items: Vec<(Item, Outcome)>) {
        for (item, outcome) in items {
            self.0.entry(item.uid.clone()).or_default().push((item, outcome));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there are so many that they have to be looked for now.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= OBJECTS
    }

    /// Takes out an object that a list still shows although it seemed gone, or still shows as it was although it seemed
    /// changed: a write and a look-up by its name have reached another one.
    fn still_listed(&mut self, listed: &Item) -> Option<(Item, Outcome)> {
        let known = self.0.get_mut(&listed.uid)?;
        let is_it = |(item, outcome): &(Item, Outcome)| {
            item.resource_version == listed.resource_version || *outcome == Outcome::Gone
        };
        let found = known.swap_remove(known.iter().position(is_it)?);
        if known.is_empty() {
            self.0.remove(&listed.uid);
        }
        Some(found)
    }
}

impl<O: Observer> Migration<'_, O> {
    /// Lists everything once more, if some objects of the pass seemed gone or changed; those that are listed as before
    /// come back, and are counted as left.
    pub(crate) async fn confirm(
        &self,
        target: &Target,
        progress: &mut Progress,
        elsewhere: &mut Elsewhere,
    ) -> Result<Vec<Quarantined>, Failure> {
        let mut left = Vec::new();
        let page_size = self.settings.page_size.min(AT_ONCE);
        let server = self.cluster.server();
        let mut listing = Chunks::new(server, target, page_size, None, self.observer, self.throttle);
        while !elsewhere.is_empty() {
            let page = self.unless_stopped(listing.next()).await??;
            for (item, outcome) in page.items.iter().filter_map(|listed| elsewhere.still_listed(listed)) {
                let misplaced = misplaced();
                progress.recount(&outcome, &misplaced);
                left.extend(quarantined(&item, misplaced));
            }
            if page.last {
                *elsewhere = Elsewhere::default();
            }
        }
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_still_listed_was_neither_deleted_nor_changed() {
        let item = |uid: &str, version: &str| Item {
            namespace: "default".into(),
            name: "a".into(),
            uid: uid.into(),
            resource_version: version.into(),
            stale_fields: None,
            converted_fields: false,
        };
        // The outcome, what is listed afterwards, and whether the object is left.
        for (outcome, listed, left) in [
            (Outcome::Gone, item("1", "7"), true),
            (Outcome::Gone, item("1", "8"), true),
            (Outcome::Gone, item("2", "7"), false),
            (Outcome::Conflicted, item("1", "7"), true),
            (Outcome::Conflicted, item("1", "8"), false),
            (Outcome::Conflicted, item("2", "7"), false),
        ] {
            let mut elsewhere = Elsewhere::default();
            elsewhere.add(vec![(item("1", "7"), outcome.clone())]);
            assert_eq!(elsewhere.still_listed(&listed).is_some(), left, "{outcome:?} {listed:?}");
            assert!(elsewhere.still_listed(&listed).is_none(), "it is left once");
            assert_eq!(elsewhere.is_empty(), left);
        }
    }
}
