//! Runs a migration: passes over all objects until one proves that nothing is left to rewrite.

use restow_clock::Instant;
use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::page::is_worth_streaming;
use restow_core::rewrite::progress::{
    Counts, PassVerdict, Phase, Progress, Quarantined, judge_pass, objects,
};
use restow_lease::Stop;

use super::agreement::Stage;
use super::confirm::Unconfirmed;
use super::deferred::Deferred;
use super::setup::{Journal, ListMode, Migration, MigrationError, Observer};
use crate::list::chunks::Chunks;
use crate::list::listing::Listing;
use crate::list::lookup::{self, Found};
use crate::list::pages::{self, Page, PageError, Target};
use crate::list::stream::Stream;
use crate::rewrite::health::Health;
use crate::rewrite::hold::Hold;
use crate::rewrite::page::{Attempt, CutShort};
use crate::rewrite::{Rewriter, Unfinished};

impl<O: Observer> Migration<'_, O> {
    /// Waits until a CRD that has just changed has settled, and starts a run for what the API servers agree on.
    ///
    /// It waits for a server that does not answer: the server may restart between two resources of one run.
    pub async fn begin(&self) -> Result<Progress, MigrationError> {
        let hash = self.resource.hash.clone().unwrap_or_default();
        let (name, version) = (self.resource.name.clone(), self.resource.storage_version_name());
        let mut progress = Progress::new(name, version, &hash, restow_clock::now());
        // Discovery may still show the former version.
        self.settle(&mut progress, Stage::Starting).await?;
        let agreement = self.agreement(Stage::Starting).await?;
        if agreement.hash != hash {
            return Err(MigrationError::Moved(format!(
                "the storage version is changing: the API servers publish {}, expected {hash}",
                agreement.hash
            )));
        }
        self.check_keys(&mut progress, Stage::Starting).await?;
        Ok(progress)
    }

    /// Runs a migration from its saved progress to its end.
    pub async fn run(
        &self,
        progress: &mut Progress,
        journal: &mut impl Journal,
    ) -> Result<(), MigrationError> {
        Box::pin(self.doubt_what_was_kept(progress)).await?;
        if progress.phase == Phase::Rewriting {
            self.pass(progress, journal).await?;
        }
        // Quarantined objects have to be fixed before anything can be proven.
        let provable =
            self.settings.verify && !self.settings.write_options.dry_run && progress.counts.quarantined == 0;
        while provable && !progress.verified {
            if progress.phase != Phase::Verifying {
                progress.begin_verifying();
            }
            self.pass(progress, journal).await?;
            if progress.verify.quarantined > 0 {
                break;
            }
            match judge_pass(&progress.verify, progress.shifted, progress.unsure, progress.passes) {
                PassVerdict::Verified => {
                    progress.conclude(self.key_requirement());
                    break;
                }
                PassVerdict::AnotherPass => progress.begin_verifying(),
                PassVerdict::Restless => {
                    // A resumed run starts with a new pass, after the user has fixed the cause.
                    let mut next = progress.clone();
                    next.passes = 0;
                    next.begin_verifying();
                    journal.save(&next, &[]).await?;
                    return Err(MigrationError::Restless(restless(progress)));
                }
            }
        }
        progress.phase = Phase::Done;
        journal.save(progress, &[]).await?;
        Ok(())
    }

    /// Discards progress that no longer counts because something changed since it was saved.
    ///
    /// If a restart of a server would not be noticed, a proof or a part of one does not count at all.
    async fn doubt_what_was_kept(&self, progress: &mut Progress) -> Result<(), MigrationError> {
        // Nothing is proven until the servers are checked again.
        let was_verified = std::mem::take(&mut progress.verified);
        progress.restart_list();
        let lasts = progress.is_valid_after_restart(self.key_requirement());
        match progress.phase {
            Phase::Rewriting if progress.counts.listed == 0 => return Ok(()),
            Phase::Rewriting => {}
            Phase::Verifying if lasts && progress.verify.listed > 0 => progress.resumed = true,
            Phase::Verifying => progress.restart_pass(),
            Phase::Done if was_verified && lasts => {}
            Phase::Done => {
                progress.passes = 0;
                return Ok(());
            }
        }
        self.check(progress).await?;
        match self.check_keys(progress, Stage::Running).await {
            // The rewritten objects are not encrypted with the current key.
            Err(MigrationError::Moved(_)) => progress.restart(),
            looked => looked?,
        }
        if progress.phase == Phase::Done && progress.shifted {
            progress.passes = 0;
        } else if progress.phase == Phase::Done {
            progress.conclude(self.key_requirement());
        }
        Ok(())
    }

    /// Rewrites all objects once, starting at the saved progress. If a pass fails, the progress is as it was last saved.
    async fn pass(&self, progress: &mut Progress, journal: &mut impl Journal) -> Result<(), MigrationError> {
        let mut deferred = Deferred::new(progress);
        // Boxed, like other rarely used futures: debug builds would overflow the stack.
        let (halt, stop) = self.stop.child();
        let wanted = progress.storage_version_hash.clone();
        let hold = Hold::default();
        let mut rewrite = Box::pin(self.rewrite(progress, &mut deferred, journal, &stop, &hold));
        let ended = tokio::select! {
            biased;
            ended = &mut rewrite => ended,
            moved = Box::pin(self.until_moved(&wanted, &hold)) => {
                halt.cancel();
                match rewrite.as_mut().await {
                    Err(MigrationError::Unfinished(Unfinished::Stopped)) if !self.stop.is_stopped() => Err(moved),
                    ended => ended,
                }
            }
        };
        drop(rewrite);
        if ended.is_err() {
            let uncounted = deferred.uncounted(progress);
            if uncounted > 0 {
                self.observer.uncounted(uncounted);
            }
            *progress = deferred.kept;
        }
        ended
    }

    async fn rewrite(
        &self,
        progress: &mut Progress,
        deferred: &mut Deferred,
        journal: &mut impl Journal,
        stop: &Stop,
        hold: &Hold,
    ) -> Result<(), MigrationError> {
        let target = self.target()?;
        let server = self.cluster.server();
        self.check(progress).await?;
        if progress.fingerprint.is_none() {
            self.check_keys(progress, Stage::Running).await?;
        }
        if progress.pass().listed == 0 {
            let counted = self.unless_stopped(lookup::count_at(server, &target)).await?;
            (progress.expected, progress.began_at) = counted.unwrap_or_default();
        }
        self.observer.pass(progress);
        let rewriter = Rewriter { hold: hold.clone(), ..self.rewriter(&target, Health::default()) };
        let mut listing = self.listing(&target, progress);
        let mut page = self.next_page(&mut listing).await?;
        let mut unconfirmed = Unconfirmed::default();
        loop {
            let began = Instant::now();
            // The next page is fetched while this one is written.
            let fetch = async {
                Ok(if page.last { Ok(Page::default()) } else { self.next_page(&mut listing).await })
            };
            let decided = |outcome: &Outcome| self.observer.decided(outcome);
            let write = rewriter.page(&page.items, Attempt::First, stop, decided);
            let (next, mut tally) = match futures::try_join!(fetch, write) {
                Ok(both) => both,
                Err(cut) => {
                    self.keep_part(&page, &cut, began, progress, deferred, journal).await?;
                    return Err(cut.into());
                }
            };
            let written = |item: &pages::Item| progress.is_written_since(&item.resource_version);
            let seems_written =
                !tally.unconfirmed.is_empty() || progress.resumed && page.items.iter().any(written);
            progress.note_hidden_write(tally.answer_lost, seems_written);
            unconfirmed.add(tally.unconfirmed);
            tally.counts.quarantined += page.unreadable.len() as u64;
            tally.quarantined.append(&mut page.unreadable);
            let last_key = page.items.last().map(pages::Item::key);
            progress.announced = page.remaining.filter(|_| page.next.is_some());
            progress.page_done(&tally.counts, page.next.take(), last_key);
            progress.seconds += began.elapsed().as_secs_f64();
            progress.updated = restow_clock::now();
            progress.unconfirmed = !unconfirmed.is_empty();
            if page.last || unconfirmed.is_full() {
                let confirm = Box::pin(self.confirm(&target, progress, &mut unconfirmed));
                tally.quarantined.extend(confirm.await?);
                progress.unconfirmed = false;
            }
            deferred.add(tally.refused, tally.quarantined, progress);
            Box::pin(self.decide(&rewriter, deferred, progress, page.last, journal, stop)).await?;
            self.observer.page(progress);
            // PriorAnswers the next write, and again after the last one.
            self.check(progress).await?;
            if page.last && progress.phase == Phase::Rewriting {
                // The next pass checks the keys when it starts.
                return Ok(());
            }
            if page.last {
                return self.check_keys(progress, Stage::Running).await;
            }
            page = next?;
        }
    }

    /// Saves the part of a page that was done before a stop, so that it is reported and not repeated.
    async fn keep_part(
        &self,
        page: &Page,
        cut: &CutShort,
        began: Instant,
        progress: &mut Progress,
        deferred: &mut Deferred,
        journal: &mut impl Journal,
    ) -> Result<(), MigrationError> {
        let last =
            usize::try_from(cut.done.listed).ok().and_then(|count| page.items.get(count.checked_sub(1)?));
        // Unreadable and deferred objects would be skipped. A verifying pass repeats the page: objects that were rewritten
        // after its first ones count there as written since.
        let whole = page.unreadable.is_empty() && deferred.is_empty() && progress.phase == Phase::Rewriting;
        let Some(last) = last.filter(|_| whole && journal.can_save_after_stop()) else {
            deferred.beyond = cut.done.rewritten + cut.beyond;
            return Ok(());
        };
        deferred.beyond = cut.beyond;
        progress.page_done(&cut.done, None, Some(last.key()));
        progress.announced = None;
        progress.seconds += began.elapsed().as_secs_f64();
        progress.updated = restow_clock::now();
        journal.save(progress, &[]).await?;
        deferred.kept = progress.clone();
        Ok(())
    }

    async fn next_page(&self, listing: &mut Listing<'_>) -> Result<Page, MigrationError> {
        Ok(self.unless_stopped(listing.next()).await??)
    }

    pub(crate) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Unfinished> {
        self.stop.unless(work).await.ok_or(Unfinished::Stopped)
    }

    /// Retries only the quarantined objects, and returns those that are still quarantined.
    ///
    /// Afterwards [`run`](Self::run) can verify, if none is left.
    pub async fn retry(
        &self,
        progress: &mut Progress,
        left: Vec<Quarantined>,
    ) -> Result<Vec<Quarantined>, MigrationError> {
        progress.verified = false;
        self.check(progress).await?;
        let target = self.target()?;
        // They were given up while the server was healthy, and get as many attempts again.
        let rewriter = self.rewriter(&target, Health::assumed());
        progress.phase = Phase::Done;
        progress.counts.quarantined = 0;
        progress.verify = Counts::default();
        progress.passes = 0;
        let mut still = Vec::new();
        for some in left.chunks(self.settings.page_size as usize) {
            self.check(progress).await?;
            let mut items = Vec::new();
            for object in some {
                let find = lookup::find(self.cluster.server(), &target, object);
                match self.unless_stopped(find).await?? {
                    Found::Item(item) => items.push(item),
                    // The verifying pass finds an object that is stored under another name.
                    Found::Gone if self.settings.verify => progress.counts.gone += 1,
                    Found::Gone | Found::Unreadable => {
                        progress.counts.quarantined += 1;
                        still.push(object.clone());
                    }
                }
            }
            let decided = |outcome: &Outcome| self.observer.decided(outcome);
            let mut tally = rewriter.page(&items, Attempt::Last, self.stop, decided).await?;
            progress.counts.add(&Counts { listed: 0, ..tally.counts });
            still.append(&mut tally.quarantined);
        }
        Ok(still)
    }

    pub(crate) fn rewriter<'t>(&'t self, target: &'t Target, health: Health) -> Rewriter<'t> {
        Rewriter {
            server: self.cluster.server(),
            target,
            write_options: self.settings.write_options,
            throttle: self.throttle,
            waiting: self.observer,
            health,
            hold: Hold::default(),
        }
    }

    fn listing<'t>(&'t self, target: &'t Target, progress: &Progress) -> Listing<'t> {
        let (server, page_size) = (self.cluster.server(), self.settings.page_size);
        let token = progress.continue_token.clone();
        let streams = match self.settings.list {
            ListMode::Chunked => false,
            ListMode::Streaming => true,
            ListMode::Auto => is_worth_streaming(progress.expected),
        };
        // A stream would show again what was listed before, so a list that was interrupted goes on in chunks.
        let from_the_first = token.is_none() && progress.last_key.is_none();
        match streams {
            true if from_the_first => {
                Listing::Stream(Stream::new(server, target, page_size, self.observer, self.throttle))
            }
            _ => {
                let behind = || {
                    let key = progress.last_key.as_deref()?;
                    Some(
                        restow_core::rewrite::token::Token::behind(key, restow_core::rewrite::token::NEWEST)
                            .encode(),
                    )
                };
                let token = token.or_else(behind);
                let chunks = Chunks::new(server, target, page_size, token, self.observer, self.throttle);
                Listing::Chunks(chunks.announced(progress.announced))
            }
        }
    }

    /// The endpoint of the resource's objects.
    pub fn target(&self) -> Result<Target, MigrationError> {
        Ok(Target::of(self.resource).ok_or_else(|| PageError::Vanished(self.resource.name.clone()))?)
    }
}

fn restless(progress: &Progress) -> String {
    if progress.verify.rewritten > 0 {
        format!(
            "{} rewritten again in pass {}: something changes them with every write, such as a mutating webhook, so that \
             no pass can prove them stored",
            objects(progress.verify.rewritten),
            progress.passes + 1
        )
    } else if progress.unsure {
        format!(
            "answers to writes were lost in each of {} passes, and the objects were written; it is unknown whether \
             restow wrote them",
            progress.passes
        )
    } else {
        format!("API servers joined, left or restarted in each of {} passes", progress.passes)
    }
}
