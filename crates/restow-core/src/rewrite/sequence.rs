//! Whether a page of a list can follow the pages before it.
//!
//! All pages of a list have the same resourceVersion. Each announces how many objects remain, and the next page has to
//! account for them. A page that does not fit is an error and never the end of a list.
//!
//! The order of names is not checked, because an object may be stored under a key that is not its name. kube-apiserver lists
//! such an object by its key if the page comes from etcd, and by its name if it comes from the watch cache, so more objects
//! may follow than were announced. That is not an error: everything that is listed is migrated.

use std::collections::HashSet;

use crate::rewrite::token::{NEWEST, Token};

/// What matters of one page for its place in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSummary {
    /// Identifies its first and last object; none if it has no objects.
    pub ends: Option<(String, String)>,
    /// How many objects it has.
    pub items: u64,
    /// The token of the next page; none on the last.
    pub next: Option<String>,
    /// Its resourceVersion, or [`NEWEST`] if it has none.
    pub version: i64,
    /// `remainingItemCount`: how many objects follow, if the server reports that.
    pub remaining: Option<u64>,
}

/// Why a page cannot follow the one before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// The continue token does not advance.
    #[error("the list repeats itself: its continue token does not lead beyond the one it was asked with")]
    TokenRepeats,
    /// The page has the same objects as the one before.
    #[error("the list repeats itself: the page has the same objects as the one before it")]
    PageRepeats,
    /// The page has another resourceVersion.
    #[error("the page is of resourceVersion {got}, and {asked} was asked for")]
    OtherVersion {
        /// The requested resourceVersion.
        asked: i64,
        /// The resourceVersion of the page.
        got: i64,
    },
    /// The page does not account for the objects that were announced.
    #[error(
        "the page before announced {announced} more objects, but this page has {items} and announces {behind} more"
    )]
    Miscounted {
        /// How many objects the page before announced.
        announced: u64,
        /// How many the page has.
        items: u64,
        /// How many objects it announces itself.
        behind: u64,
    },
    /// The page announces more objects and has no continue token.
    #[error("the page has no continue token although {0} objects remain")]
    Unfinished(u64),
}

/// What the pages so far have announced.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    ends: Option<(String, String)>,
    announced: Option<(i64, u64)>,
    /// Tokens of an unknown form, which cannot be compared.
    foreign: HashSet<String>,
}

impl Sequence {
    /// Resumes with a token after which this many objects were announced.
    pub fn resumed(token: Option<&str>, announced: Option<u64>) -> Self {
        let version = token.and_then(Token::decode).map(|token| token.resource_version);
        Self { announced: version.zip(announced), ..Self::default() }
    }

    /// How many objects were announced after the last page.
    pub fn announced(&self) -> Option<u64> {
        self.announced.map(|(_, remaining)| remaining)
    }

    /// Forgets what was announced, because an unreadable object was skipped.
    pub fn stepped_over(&mut self) {
        self.announced = None;
    }

    /// Adds the page that was requested with this token, or returns why it cannot follow.
    pub fn take(&mut self, asked: Option<&str>, page: &PageSummary) -> Result<(), SequenceError> {
        self.check(asked, page)?;
        if let Some(next) = page.next.as_ref().filter(|next| Token::decode(next).is_none()) {
            self.foreign.insert(next.clone());
        }
        self.ends.clone_from(&page.ends);
        self.announced = page.remaining.filter(|_| page.next.is_some()).map(|count| (page.version, count));
        Ok(())
    }

    fn check(&self, asked: Option<&str>, page: &PageSummary) -> Result<(), SequenceError> {
        let from = asked.and_then(Token::decode);
        if let Some(next) = page.next.as_deref() {
            let back = match (&from, Token::decode(next)) {
                (Some(from), Some(to)) => to.start <= from.start,
                _ => self.foreign.contains(next) || asked == Some(next),
            };
            if back {
                return Err(SequenceError::TokenRepeats);
            }
        }
        if asked.is_some() && page.ends.is_some() && page.ends == self.ends {
            return Err(SequenceError::PageRepeats);
        }
        if let Some(from) = from.filter(|from| from.resource_version > 0)
            && from.resource_version != page.version
        {
            return Err(SequenceError::OtherVersion { asked: from.resource_version, got: page.version });
        }
        let behind = match (&page.next, page.remaining) {
            (None, Some(remaining)) if remaining > 0 => return Err(SequenceError::Unfinished(remaining)),
            (None, _) => Some(0),
            (Some(_), remaining) => remaining,
        };
        match (self.announced, behind) {
            (Some((version, announced)), Some(behind))
                if version != NEWEST && version == page.version && announced > page.items + behind =>
            {
                Err(SequenceError::Miscounted { announced, items: page.items, behind })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(start: &str, version: i64) -> String {
        Token::behind(start, version).encode()
    }

    fn page(
        first: &str,
        items: u64,
        next: Option<String>,
        version: i64,
        remaining: Option<u64>,
    ) -> PageSummary {
        let ends = (items > 0).then(|| (first.to_owned(), format!("{first} and {items}")));
        PageSummary { ends, items, next, version, remaining }
    }

    #[test]
    fn a_page_must_follow_the_one_before() {
        let first = || page("a", 20, Some(token("a/20", 7)), 7, Some(40));
        let at = |version| Some(token("a/20", version));
        let miscounted = |items, behind| Err(SequenceError::Miscounted { announced: 40, items, behind });
        for (what, asked, second, expected) in [
            ("the next", at(7), page("b", 20, Some(token("b/20", 7)), 7, Some(20)), Ok(())),
            ("the last", at(7), page("b", 40, None, 7, None), Ok(())),
            ("the last, which says so", at(7), page("b", 40, None, 7, Some(0)), Ok(())),
            ("an uncounted one", at(7), page("b", 20, Some(token("b/20", 7)), 7, None), Ok(())),
            ("an empty one", at(7), page("b", 0, None, 7, None), miscounted(0, 0)),
            ("a short one", at(7), page("b", 39, None, 7, None), miscounted(39, 0)),
            ("a gap", at(7), page("b", 20, Some(token("b/20", 7)), 7, Some(19)), miscounted(20, 19)),
            ("one more", at(7), page("b", 20, Some(token("b/20", 7)), 7, Some(21)), Ok(())),
            ("no token", at(7), page("b", 20, None, 7, Some(20)), Err(SequenceError::Unfinished(20))),
            (
                "another list",
                at(7),
                page("b", 0, None, 8, None),
                Err(SequenceError::OtherVersion { asked: 7, got: 8 }),
            ),
            (
                "a list of no version",
                at(7),
                page("b", 0, None, NEWEST, None),
                Err(SequenceError::OtherVersion { asked: 7, got: NEWEST }),
            ),
            ("a later one, after a 410", at(NEWEST), page("b", 10, None, 9, None), Ok(())),
            ("the same token", at(7), page("a", 20, at(7), 7, Some(20)), Err(SequenceError::TokenRepeats)),
            (
                "an earlier token",
                at(7),
                page("b", 20, Some(token("a/1", 7)), 7, Some(20)),
                Err(SequenceError::TokenRepeats),
            ),
            (
                "the same page",
                at(7),
                page("a", 20, Some(token("c", 7)), 7, Some(20)),
                Err(SequenceError::PageRepeats),
            ),
            ("the first page again, from the beginning", None, first(), Ok(())),
        ] {
            let mut list = Sequence::default();
            assert_eq!(list.take(None, &first()), Ok(()));
            if asked.is_none() {
                list = Sequence::default();
            }
            assert_eq!(list.take(asked.as_deref(), &second), expected, "{what}");
        }
    }

    #[test]
    fn a_page_error_leaves_the_sequence_unchanged() {
        let mut list = Sequence::default();
        assert_eq!(list.take(None, &page("a", 20, Some(token("a/20", 7)), 7, Some(40))), Ok(()));
        let asked = token("a/20", 7);
        assert!(list.take(Some(&asked), &page("b", 0, None, 7, None)).is_err());
        assert_eq!(list.announced(), Some(40));
        assert_eq!(list.take(Some(&asked), &page("b", 40, None, 7, None)), Ok(()));
    }

    #[test]
    fn a_skipped_object_is_not_counted_as_missing() {
        let mut list = Sequence::default();
        assert_eq!(list.take(None, &page("a", 20, Some(token("a/20", 7)), 7, Some(40))), Ok(()));
        list.stepped_over();
        assert_eq!(list.take(Some(&token("b/1", 7)), &page("b", 39, None, 7, None)), Ok(()));
    }

    #[test]
    fn a_resumed_list_holds_the_server_to_what_it_announced() {
        for (asked, announced, fits) in [
            (token("a", 7), Some(40), false),
            (token("a", 7), None, true),
            (token("a", NEWEST), Some(40), true),
        ] {
            let mut list = Sequence::resumed(Some(&asked), announced);
            assert_eq!(list.take(Some(&asked), &page("b", 0, None, 7, None)).is_ok(), fits, "{announced:?}");
        }
    }

    #[test]
    fn tokens_of_another_form_must_not_come_back() {
        let mut list = Sequence::default();
        let next = |name: &str| Some(name.to_owned());
        assert_eq!(list.take(None, &page("a", 9, next("!1"), 7, None)), Ok(()));
        assert_eq!(list.take(Some("!1"), &page("b", 9, next("!2"), 7, None)), Ok(()));
        for again in ["!1", "!2"] {
            let shown = page("c", 9, next(again), 7, None);
            assert_eq!(list.take(Some("!2"), &shown), Err(SequenceError::TokenRepeats));
        }
        assert_eq!(list.take(Some("!2"), &page("c", 9, None, 8, None)), Ok(()));
    }
}
