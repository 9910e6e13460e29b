//! One write of a migration by itself, so that those who watch the resource hear of it.

use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::progress::Progress;

use super::setup::{Failure, Migration, Observer};
use crate::list::chunks::Chunks;
use crate::rewrite::health::Health;
use crate::rewrite::page::Attempt;

/// How many objects are tried at most.
const TRIES: u32 = 100;

impl<O: Observer> Migration<'_, O> {
    /// Writes one object after the other, as a pass would, until one of them was stored anew; says whether one was.
    ///
    /// Only then is there an event: a write that finds its object stored as it should be leaves no trace.
    pub async fn touch(&self, progress: &mut Progress) -> Result<bool, Failure> {
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
