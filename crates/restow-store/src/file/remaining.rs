//! Remembers how many keys follow each page of a list, so that they are not counted again for every page.
//!
//! The first page uses the number of keys that the file has for the prefix, and each page stores the rest for the next one.
//! Only a page without a known predecessor has to count, after a restart for example.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use crate::Range;

/// How many lists are remembered.
const KEPT: usize = 256;

/// How many keys follow the last page of each list.
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
    /// How many keys a range has from its start on, if the previous page is remembered.
    pub(super) fn before(&self, range: &Range, revision: u64) -> Option<u64> {
        // The next page starts right after the last key of the previous one.
        let last = range.start.as_deref()?.strip_suffix('\0')?;
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut newest_first = pages.iter().rev();
        let page = newest_first
            .find(|page| page.revision == revision && page.last == last && page.prefix == range.prefix);
        page.map(|page| page.remaining)
    }

    /// Remembers how many keys follow a page.
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
    fn the_rest_is_known_only_for_the_next_page_of_the_same_list() {
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
    fn the_oldest_pages_are_forgotten() {
        let known = Remaining::default();
        for revision in 0..=KEPT as u64 {
            known.after(&range("/a/", None), revision, "/a/k", revision);
        }
        assert_eq!(known.before(&range("/a/", Some("/a/k\0")), 0), None);
        assert_eq!(known.before(&range("/a/", Some("/a/k\0")), 1), Some(1));
    }
}
