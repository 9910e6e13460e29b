//! Threads that take a share of large reviews. All reviews together have a limited number of them, so many reviews at once
//! make no more threads than processors can run, and a converter that does not return keeps only those that its review took.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A review gets a helper for each so many bytes of it.
const SHARE: usize = 512 * 1024;

/// The helpers that are free.
#[derive(Clone, Debug)]
pub(super) struct Helpers(Arc<Semaphore>);

impl Helpers {
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count.min(1_000))))
    }

    /// Takes helpers for a review of this length: at most half of those that are free, so that the next review gets some too.
    pub(super) fn take(&self, length: usize) -> Option<(usize, OwnedSemaphorePermit)> {
        let wanted = (length / SHARE).min(self.0.available_permits().div_ceil(2));
        let taken = Arc::clone(&self.0).try_acquire_many_owned(u32::try_from(wanted).ok()?).ok()?;
        Some((wanted, taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_reviews_share_the_helpers_and_small_ones_take_none() {
        let helpers = Helpers::new(4);
        let (count, _none) = helpers.take(SHARE - 1).unwrap();
        assert_eq!(count, 0);
        let (count, first) = helpers.take(100 * SHARE).unwrap();
        assert_eq!(count, 2);
        let (count, _second) = helpers.take(100 * SHARE).unwrap();
        assert_eq!(count, 1);
        let (count, _third) = helpers.take(100 * SHARE).unwrap();
        assert_eq!(count, 1);
        assert_eq!(helpers.take(100 * SHARE).unwrap().0, 0);
        drop(first);
        assert_eq!(helpers.take(SHARE).unwrap().0, 1);
    }
}
