//! Which paths a server has answered so far. An error for such a path may come from something in between.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use restow_core::agreement::transient::PriorAnswers;

/// The paths of requests that one server has answered with success.
#[derive(Default)]
pub(crate) struct AnswerHistory(Mutex<HashSet<String>>);

impl AnswerHistory {
    /// Which requests succeeded before a request for this path.
    pub(crate) fn before(&self, path: &str) -> PriorAnswers {
        let paths = self.paths();
        PriorAnswers { anything: !paths.is_empty(), this: paths.contains(without_query(path)) }
    }

    /// Records that a read succeeded.
    pub(crate) fn well(&self, path: &str) {
        let (mut paths, path) = (self.paths(), without_query(path));
        if !paths.contains(path) {
            paths.insert(path.to_owned());
        }
    }

    fn paths(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn without_query(path: &str) -> &str {
    path.split_once('?').map_or(path, |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_was_answered_counts_for_its_whole_list() {
        let history = AnswerHistory::default();
        assert_eq!(history.before("/b"), PriorAnswers::default());
        history.well("/b?limit=1");
        assert_eq!(history.before("/b?limit=2"), PriorAnswers::ALL);
        assert_eq!(history.before("/c"), PriorAnswers { anything: true, this: false });
    }
}
