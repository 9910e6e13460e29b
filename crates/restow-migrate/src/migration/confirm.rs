//! Confirms with a list that objects which a look-up by name shows as deleted or changed are really so.
//!
//! An object may be stored under a key that is not its name. A write or a look-up by its name reaches another object or
//! none, but lists show it. Its place in a list is unknown: API servers list from etcd in the order of keys, and from
//! their caches in the order of names. So all objects are listed again, once in a pass.

use std::collections::HashMap;

use restow_core::rewrite::outcome::{Outcome, misplaced};
use restow_core::rewrite::progress::{Progress, Quarantined};

use super::setup::{Migration, MigrationError, Observer};
use crate::list::chunks::Chunks;
use crate::list::{Item, Target};
use crate::rewrite::page::quarantined;

/// The page size: two other pages are in memory already.
const PAGE_SIZE: u32 = 50;
/// How many objects may wait to be confirmed.
const MAX_OBJECTS: usize = 10_000;

/// The objects of a pass that seem deleted or changed, by uid. Objects that were copied in etcd share a uid.
#[derive(Default)]
pub(crate) struct Unconfirmed(HashMap<Box<str>, Vec<(Item, Outcome)>>);

impl Unconfirmed {
    /// Adds those of a page.
    pub(crate) fn add(&mut self, items: Vec<(Item, Outcome)>) {
        for (item, outcome) in items {
            self.0.entry(item.uid.clone()).or_default().push((item, outcome));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether they have to be confirmed now, because there are too many.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MAX_OBJECTS
    }

    /// Removes an object that a list still shows although it seemed deleted, or shows unchanged although it seemed changed.
    /// The write and the look-up by its name have reached another object.
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
    /// Lists everything again if some objects of the pass seemed deleted or changed. Those that are listed as before are
    /// quarantined and returned.
    pub(crate) async fn confirm(
        &self,
        target: &Target,
        progress: &mut Progress,
        unconfirmed: &mut Unconfirmed,
    ) -> Result<Vec<Quarantined>, MigrationError> {
        let mut left = Vec::new();
        let page_size = self.settings.page_size.min(PAGE_SIZE);
        let server = self.cluster.server();
        let mut listing = Chunks::new(server, target, page_size, None, self.observer, self.throttle);
        while !unconfirmed.is_empty() {
            let page = self.unless_stopped(listing.next()).await??;
            for (item, outcome) in page.items.iter().filter_map(|listed| unconfirmed.still_listed(listed)) {
                let misplaced = misplaced();
                progress.recount(&outcome, &misplaced);
                left.extend(quarantined(&item, misplaced));
            }
            if page.last {
                *unconfirmed = Unconfirmed::default();
            }
        }
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_listed_as_before_is_quarantined() {
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
            let mut unconfirmed = Unconfirmed::default();
            unconfirmed.add(vec![(item("1", "7"), outcome.clone())]);
            assert_eq!(unconfirmed.still_listed(&listed).is_some(), left, "{outcome:?} {listed:?}");
            assert!(unconfirmed.still_listed(&listed).is_none(), "it is left once");
            assert_eq!(unconfirmed.is_empty(), left);
        }
    }
}
