//! What a server has answered well so far, by which an answer that may be somebody else's is told from a true one.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use restow_core::agreement::transient::PriorAnswers;

/// What one server has answered well, by path.
#[derive(Default)]
pub(crate) struct Heard(Mutex<HashSet<String>>);

impl Heard {
    /// What was answered well before.
    pub(crate) fn before(&self, path: &str) -> PriorAnswers {
        let paths = self.paths();
        PriorAnswers { anything: !paths.is_empty(), this: paths.contains(without_query(path)) }
    }

    /// Takes in that a read was answered with what it asked for.
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
    fn a_page_shows_that_the_whole_list_may_be_read() {
        let heard = Heard::default();
        assert_eq!(heard.before("/b"), PriorAnswers::default());
        heard.well("/b?limit=1");
        assert_eq!(heard.before("/b?limit=2"), PriorAnswers::ALL);
        assert_eq!(heard.before("/c"), PriorAnswers { anything: true, this: false });
    }
}
