//! A single write of a migration, so that watchers of the resource receive an event.

use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::progress::Progress;

use super::setup::{Migration, MigrationError, Observer};
use crate::list::chunks::Chunks;
use crate::rewrite::health::Health;
use crate::rewrite::page::Attempt;

/// How many objects are tried at most.
const TRIES: u32 = 100;

impl<O: Observer> Migration<'_, O> {
    /// Writes one object after the other, like a pass, until one was rewritten. Returns whether one was.
    ///
    /// Only a rewritten object causes an event.
    pub async fn touch(&self, progress: &mut Progress) -> Result<bool, MigrationError> {
        self.check(progress).await?;
        let target = self.target()?;
        let rewriter = self.rewriter(&target, Health::assumed());
        let mut listing =
            Chunks::new(self.cluster.server(), &target, TRIES, None, self.observer, self.throttle);
        let page = self.unless_stopped(listing.next()).await??;
        for item in page.items.chunks(1) {
            let decided = |outcome: &Outcome| self.observer.decided(outcome);
            let tally = rewriter.page(item, Attempt::Last, self.stop, decided).await?;
            if tally.counts.rewritten > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
