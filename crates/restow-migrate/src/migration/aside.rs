//! Sets refused objects aside, and tries them once more when their refusal has had time to pass.
//!
//! The other pages go on meanwhile. The progress of a page is kept only when all its objects are decided, so a crash
//! sends again what was done since the oldest object was set aside.

use std::collections::VecDeque;
use std::time::Duration;

use restow_clock::Instant;
use restow_core::rewrite::outcome::{Outcome, REFUSAL_TIMEOUT};
use restow_core::rewrite::progress::{Progress, Quarantined, objects};

use super::setup::{Failure, Journal, Migration, Observer};
use crate::list::Item;
use crate::rewrite::Rewriter;
use crate::rewrite::page::Attempt;

/// How many objects are set aside at most, how many bytes of managedFields they may hold, and how many pages may wait.
const OBJECTS: usize = 10_000;
const BYTES: usize = 8 << 20;
const PAGES: usize = 1000;

/// The pages with objects that were set aside, and those behind them.
pub(crate) struct Aside {
    pages: VecDeque<Pending>,
    /// The progress as it was last kept.
    pub(crate) kept: Progress,
    /// How many objects of a page that was cut short were rewritten and are not counted in the progress.
    pub(crate) beyond: u64,
}

/// A page that is not kept yet.
struct Pending {
    /// Those of its objects that were refused.
    items: Vec<Item>,
    /// When they were.
    at: Instant,
    /// The progress right behind the page.
    progress: Progress,
    /// Those of its objects that were left.
    left: Vec<Quarantined>,
}

impl Pending {
    /// How long its objects are left in peace.
    fn wait(&self, now: Instant) -> Duration {
        if self.items.is_empty() { Duration::ZERO } else { REFUSAL_TIMEOUT.saturating_sub(now - self.at) }
    }
}

impl Aside {
    /// Nothing, before a pass.
    pub(crate) fn new(progress: &Progress) -> Self {
        Self { pages: VecDeque::new(), kept: progress.clone(), beyond: 0 }
    }

    /// Takes in a page whose other objects are decided.
    pub(crate) fn add(&mut self, refused: Vec<Item>, left: Vec<Quarantined>, progress: &Progress) {
        let (at, progress) = (Instant::now(), progress.clone());
        self.pages.push_back(Pending { items: refused, at, progress, left });
    }

    /// How many objects were rewritten behind what was last kept, given the progress with all pages.
    pub(crate) fn uncounted(&self, progress: &Progress) -> u64 {
        progress.pass().rewritten.saturating_sub(self.kept.pass().rewritten) + self.beyond
    }

    /// Whether every page is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    fn is_full(&self) -> bool {
        let items = || self.pages.iter().flat_map(|page| &page.items);
        let bytes = |item: &Item| item.stale_fields.as_ref().map_or(0, |fields| fields.get().len());
        self.pages.len() >= PAGES || items().count() >= OBJECTS || items().map(bytes).sum::<usize>() >= BYTES
    }

    /// The first pages, as far as their objects may be tried once more.
    fn due(&mut self, now: Instant) -> Vec<Pending> {
        let due = self.pages.iter().take_while(|page| page.wait(now).is_zero()).count();
        self.pages.drain(..due).collect()
    }
}

impl<O: Observer> Migration<'_, O> {
    /// Tries refused objects once more, where it is time for that, and keeps the progress of pages that are decided then.
    ///
    /// At the `end` of a pass it waits until that is so for all of them.
    pub(crate) async fn decide(
        &self,
        rewriter: &Rewriter<'_>,
        aside: &mut Aside,
        progress: &mut Progress,
        end: bool,
        journal: &mut impl Journal,
    ) -> Result<(), Failure> {
        while let Some(first) = aside.pages.front() {
            let wait = first.wait(Instant::now());
            if !wait.is_zero() {
                if !end && !aside.is_full() {
                    return Ok(());
                }
                let refused: usize = aside.pages.iter().map(|page| page.items.len()).sum();
                self.observer
                    .waiting(&format!("{} refused, to be tried once more", objects(refused as u64)), wait);
                self.unless_stopped(tokio::time::sleep(wait)).await?;
            }
            let mut pages = aside.due(Instant::now());
            let (mut items, mut left) = (Vec::new(), Vec::new());
            for page in &mut pages {
                items.append(&mut page.items);
                left.append(&mut page.left);
            }
            let Some(last) = pages.pop() else { continue };
            let mut behind = last.progress;
            if !items.is_empty() {
                // The servers were last looked at before the wait.
                self.check(progress).await?;
                let decided = |outcome: &Outcome| self.observer.decided(outcome);
                let mut tally = rewriter.page(&items, Attempt::Last, self.stop, decided).await?;
                left.append(&mut tally.quarantined);
                let later = aside.pages.iter_mut().map(|page| &mut page.progress);
                for progress in later.chain([&mut behind, &mut *progress]) {
                    progress.count_retried(&tally.counts);
                }
            }
            let kept = if aside.pages.is_empty() { &*progress } else { &behind };
            journal.save(kept, &left).await?;
            aside.kept = kept.clone();
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
    fn pages_are_due_in_order_once_their_refusals_have_lasted() {
        let progress =
            Progress::new(GroupResource::parse("widgets.example.com"), "v2", "x", Timestamp::default());
        let mut aside = Aside::new(&progress);
        let began = Instant::now();
        // How many objects of each page were refused.
        for refused in [0, 0, 2, 0, 1] {
            aside.add(vec![item(0); refused], Vec::new(), &progress);
        }
        for (at, page) in aside.pages.iter_mut().enumerate() {
            page.at = began + Duration::from_secs(at as u64);
        }
        let mut due = |seconds| aside.due(began + Duration::from_secs(seconds)).len();
        assert_eq!([0, 16, 17, 18, 19].map(&mut due), [2, 0, 2, 0, 1]);
    }

    #[test]
    fn what_was_rewritten_behind_the_kept_place_is_counted_apart() {
        let mut progress =
            Progress::new(GroupResource::parse("widgets.example.com"), "v2", "x", Timestamp::default());
        progress.counts.rewritten = 100;
        let mut aside = Aside::new(&progress);
        assert_eq!(aside.uncounted(&progress), 0);
        // A page with a refused object waits, and the one behind it was cut short.
        progress.counts.rewritten = 199;
        aside.add(vec![item(0)], Vec::new(), &progress);
        aside.beyond = 33;
        assert_eq!(aside.uncounted(&progress), 132);
    }

    #[test]
    fn what_is_set_aside_is_bounded() {
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
            let mut aside = Aside::new(&progress);
            for _ in 0..pages {
                aside.add(vec![item(fields); refused], Vec::new(), &progress);
            }
            assert_eq!(aside.is_full(), full, "{pages} {refused} {fields}");
        }
    }
}
