//! Defers refused objects, and retries them once when the cause has had time to pass.
//!
//! Other pages go on meanwhile. The progress of a page is saved only when the outcomes of all its objects are decided, so
//! after a crash everything since the oldest deferred object is written again.

use std::collections::VecDeque;
use std::time::Duration;

use restow_clock::Instant;
use restow_core::rewrite::outcome::{Outcome, REFUSAL_TIMEOUT};
use restow_core::rewrite::progress::{Progress, Quarantined, objects};
use restow_lease::Stop;

use super::setup::{Journal, Migration, MigrationError, Observer};
use crate::list::Item;
use crate::rewrite::page::Attempt;
use crate::rewrite::{Rewriter, Unfinished};

/// How many objects may be deferred, how many bytes of managedFields they may have, and how many pages may wait.
const MAX_OBJECTS: usize = 10_000;
const MAX_BYTES: usize = 8 << 20;
const MAX_PAGES: usize = 1000;

/// The pages with deferred objects, and all pages after them.
pub(crate) struct Deferred {
    pages: VecDeque<Pending>,
    /// The progress as it was last saved.
    pub(crate) kept: Progress,
    /// How many objects of a page that was cut short were rewritten and are not counted in the progress.
    pub(crate) beyond: u64,
}

/// A page that is not saved yet.
struct Pending {
    /// Its refused objects.
    items: Vec<Item>,
    /// When they were refused.
    at: Instant,
    /// The progress after the page.
    progress: Progress,
    /// Its quarantined objects.
    left: Vec<Quarantined>,
}

impl Pending {
    /// How long to wait before its objects are retried.
    fn wait(&self, now: Instant) -> Duration {
        if self.items.is_empty() { Duration::ZERO } else { REFUSAL_TIMEOUT.saturating_sub(now - self.at) }
    }
}

impl Deferred {
    /// Nothing is deferred at the start of a pass.
    pub(crate) fn new(progress: &Progress) -> Self {
        Self { pages: VecDeque::new(), kept: progress.clone(), beyond: 0 }
    }

    /// Adds a page whose other objects have an outcome.
    pub(crate) fn add(&mut self, refused: Vec<Item>, left: Vec<Quarantined>, progress: &Progress) {
        let (at, progress) = (Instant::now(), progress.clone());
        self.pages.push_back(Pending { items: refused, at, progress, left });
    }

    /// How many objects were rewritten since the progress was last saved, given the current progress.
    pub(crate) fn uncounted(&self, progress: &Progress) -> u64 {
        progress.pass().rewritten.saturating_sub(self.kept.pass().rewritten) + self.beyond
    }

    /// Whether every page is saved.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    fn is_full(&self) -> bool {
        let items = || self.pages.iter().flat_map(|page| &page.items);
        let bytes = |item: &Item| item.stale_fields.as_ref().map_or(0, |fields| fields.get().len());
        self.pages.len() >= MAX_PAGES
            || items().count() >= MAX_OBJECTS
            || items().map(bytes).sum::<usize>() >= MAX_BYTES
    }

    /// The first pages whose objects may be retried now.
    fn due(&mut self, now: Instant) -> Vec<Pending> {
        let due = self.pages.iter().take_while(|page| page.wait(now).is_zero()).count();
        self.pages.drain(..due).collect()
    }
}

impl<O: Observer> Migration<'_, O> {
    /// Retries refused objects that are due, and saves the progress of pages that are complete then.
    ///
    /// At the `end` of a pass it waits for all of them. `stop` is the pass's own: a pass that is halted while writes are on hold
    /// must not wait for their release.
    pub(crate) async fn decide(
        &self,
        rewriter: &Rewriter<'_>,
        deferred: &mut Deferred,
        progress: &mut Progress,
        end: bool,
        journal: &mut impl Journal,
        stop: &Stop,
    ) -> Result<(), MigrationError> {
        while let Some(first) = deferred.pages.front() {
            let wait = first.wait(Instant::now());
            if !wait.is_zero() {
                if !end && !deferred.is_full() {
                    return Ok(());
                }
                let refused: usize = deferred.pages.iter().map(|page| page.items.len()).sum();
                self.observer.waiting(&format!("{} refused; retrying later", objects(refused as u64)), wait);
                stop.unless(tokio::time::sleep(wait)).await.ok_or(Unfinished::Stopped)?;
            }
            let mut pages = deferred.due(Instant::now());
            let (mut items, mut left) = (Vec::new(), Vec::new());
            for page in &mut pages {
                items.append(&mut page.items);
                left.append(&mut page.left);
            }
            let Some(last) = pages.pop() else { continue };
            let mut behind = last.progress;
            if !items.is_empty() {
                // The servers were last checked before the wait.
                self.check(progress).await?;
                let decided = |outcome: &Outcome| self.observer.decided(outcome);
                let mut tally = rewriter.page(&items, Attempt::Last, stop, decided).await?;
                left.append(&mut tally.quarantined);
                let later = deferred.pages.iter_mut().map(|page| &mut page.progress);
                for progress in later.chain([&mut behind, &mut *progress]) {
                    progress.count_retried(&tally.counts);
                }
            }
            let kept = if deferred.pages.is_empty() { &*progress } else { &behind };
            journal.save(kept, &left).await?;
            deferred.kept = kept.clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use restow_core::resource::name::GroupResource;

    use super::*;

    fn item(fields: usize) -> Item {
        let fields = serde_json::value::to_raw_value(&"x".repeat(fields)).unwrap();
        Item {
            namespace: "default".into(),
            name: "a".into(),
            uid: "1".into(),
            resource_version: "1".into(),
            stale_fields: Some(fields),
            converted_fields: false,
        }
    }

    #[test]
    fn pages_are_retried_in_order_when_their_wait_is_over() {
        let progress =
            Progress::new(GroupResource::parse("widgets.example.com"), "v2", "x", Timestamp::default());
        let mut deferred = Deferred::new(&progress);
        let began = Instant::now();
        // How many objects of each page were refused.
        for refused in [0, 0, 2, 0, 1] {
            deferred.add(vec![item(0); refused], Vec::new(), &progress);
        }
        for (at, page) in deferred.pages.iter_mut().enumerate() {
            page.at = began + Duration::from_secs(at as u64);
        }
        let mut due = |seconds| deferred.due(began + Duration::from_secs(seconds)).len();
        assert_eq!([0, 16, 17, 18, 19].map(&mut due), [2, 0, 2, 0, 1]);
    }

    #[test]
    fn objects_rewritten_after_the_saved_progress_are_counted_separately() {
        let mut progress =
            Progress::new(GroupResource::parse("widgets.example.com"), "v2", "x", Timestamp::default());
        progress.counts.rewritten = 100;
        let mut deferred = Deferred::new(&progress);
        assert_eq!(deferred.uncounted(&progress), 0);
        // A page with a refused object waits, and the one behind it was cut short.
        progress.counts.rewritten = 199;
        deferred.add(vec![item(0)], Vec::new(), &progress);
        deferred.beyond = 33;
        assert_eq!(deferred.uncounted(&progress), 132);
    }

    #[test]
    fn the_number_of_deferred_objects_is_bounded() {
        let progress =
            Progress::new(GroupResource::parse("widgets.example.com"), "v2", "x", Timestamp::default());
        for (pages, refused, fields, full) in [
            (1, 9_999, 0, false),
            (1, 10_000, 0, true),
            (2, 5_000, 0, true),
            (999, 0, 0, false),
            (1000, 0, 0, true),
            (4, 1, 2 << 20, true),
            (3, 1, 2 << 20, false),
        ] {
            let mut deferred = Deferred::new(&progress);
            for _ in 0..pages {
                deferred.add(vec![item(fields); refused], Vec::new(), &progress);
            }
            assert_eq!(deferred.is_full(), full, "{pages} {refused} {fields}");
        }
    }
}
