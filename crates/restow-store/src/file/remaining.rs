//! How much of a list is still to come, without counting it again for each of its pages.
//!
//! The first page takes the count that the file keeps of its prefix; each page remembers what it left for the next.
//! Only a page that follows on none (after a restart, or with a start of the reader's own) has to count.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use crate::Range;

/// Lists that can go on at a time without counting.
const KEPT: usize = 256;

/// What the pages of lists left for the next.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    pages: Mutex<VecDeque<Page>>,
}

#[derive(Debug)]
struct Page {
    prefix: String,
    revision: u64,
    last: String,
    remaining: u64,
}

impl Remaining {
    /// How many keys a range has from its start on, where the page before told.
    pub(super) fn before(&self, range: &Range, revision: u64) -> Option<u64> {
        // The next page starts right behind the last key of the one before.
        let last = range.start.as_deref()?.strip_suffix('\0')?;
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut newest_first = pages.iter().rev();
        let page = newest_first
            .find(|page| page.revision == revision && page.last == last && page.prefix == range.prefix);
        page.map(|page| page.remaining)
    }

    /// Remembers what a page left.
    pub(super) fn after(&self, range: &Range, revision: u64, last: &str, remaining: u64) {
        let page = Page { prefix: range.prefix.clone(), revision, last: last.to_owned(), remaining };
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() == KEPT {
            pages.pop_front();
        }
        pages.push_back(page);
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, Remaining};
    use crate::Range;

    fn range(prefix: &str, start: Option<&str>) -> Range {
        Range { prefix: prefix.into(), start: start.map(Into::into), limit: 1, revision: None }
    }

    #[test]
    fn the_next_page_of_the_same_list_is_known() {
        let known = Remaining::default();
        known.after(&range("/a/", None), 7, "/a/k", 41);
        for (prefix, start, revision, expected) in [
            ("/a/", Some("/a/k\0"), 7, Some(41)),
            ("/a/", Some("/a/k\0"), 8, None),
            ("/a/", Some("/a/k"), 7, None),
            ("/a/", None, 7, None),
            ("/", Some("/a/k\0"), 7, None),
        ] {
            assert_eq!(
                known.before(&range(prefix, start), revision),
                expected,
                "{prefix} {start:?} {revision}"
            );
        }
    }

    #[test]
    fn old_pages_are_forgotten() {
        let known = Remaining::default();
        for revision in 0..=KEPT as u64 {
            known.after(&range("/a/", None), revision, "/a/k", revision);
        }
        assert_eq!(known.before(&range("/a/", Some("/a/k\0")), 0), None);
        assert_eq!(known.before(&range("/a/", Some("/a/k\0")), 1), Some(1));
    }
}
