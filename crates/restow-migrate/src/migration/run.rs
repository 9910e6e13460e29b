//! Runs a migration: passes over all objects until one proves that nothing is left to rewrite.

use restow_clock::Instant;
use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::page::is_worth_streaming;
use restow_core::rewrite::progress::{
    Counts, PassVerdict, Phase, Progress, Quarantined, judge_pass, objects,
};
use restow_lease::Stop;

use super::aside::Aside;
use super::confirm::Elsewhere;
use super::looks::Patience;
use super::setup::{Failure, Journal, ListMode, Migration, Observer};
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
    /// Waits until a fresh definition has settled, and takes the agreement the run is for.
    ///
    /// A server that does not answer is waited for: it may restart between two resources of one run.
    pub async fn begin(&self) -> Result<Progress, Failure> {
        let hash = self.resource.hash.clone().unwrap_or_default();
        let (name, version) = (self.resource.name.clone(), self.resource.storage_version_name());
        let mut progress = Progress::new(name, version, &hash, restow_clock::now());
        // Its discovery may still show what was before.
        self.settle(&mut progress, Patience::Beginning).await?;
        let agreement = self.agreement(Patience::Beginning).await?;
        if agreement.hash != hash {
            return Err(Failure::Moved(format!(
                "the storage version is changing: the API servers say {}, it should be {hash}",
                agreement.hash
            )));
        }
        self.check_keys(&mut progress, Patience::Beginning).await?;
        Ok(progress)
    }

    /// Takes a migration from where its progress is to its end.
    pub async fn run(&self, progress: &mut Progress, journal: &mut impl Journal) -> Result<(), Failure> {
        Box::pin(self.doubt_what_was_kept(progress)).await?;
        if progress.phase == Phase::Rewriting {
            self.pass(progress, journal).await?;
        }
        // What was left can only be proven once it is dealt with.
        let provable =
            self.settings.verify && !self.settings.manner.dry_run && progress.counts.quarantined == 0;
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
                    // Whoever resumes has mended the cause, and judges by a pass of its own.
                    let mut next = progress.clone();
                    next.passes = 0;
                    next.begin_verifying();
                    journal.save(&next, &[]).await?;
                    return Err(Failure::Restless(restless(progress)));
                }
            }
        }
        progress.phase = Phase::Done;
        journal.save(progress, &[]).await?;
        Ok(())
    }

    /// What was kept before a stop counts only if nothing has moved since.
    ///
    /// Where nothing would show that a server was restarted, a proof, or a part of one, does not count at all.
    async fn doubt_what_was_kept(&self, progress: &mut Progress) -> Result<(), Failure> {
        // Until it is looked at again, nothing is proven.
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
        match self.check_keys(progress, Patience::Running).await {
            // What was rewritten is not under the key that the API servers use now.
            Err(Failure::Moved(_)) => progress.restart(),
            looked => looked?,
        }
        if progress.phase == Phase::Done && progress.shifted {
            progress.passes = 0;
        } else if progress.phase == Phase::Done {
            progress.conclude(self.key_requirement());
        }
        Ok(())
    }

    /// Rewrites all objects once, from where the progress is. A pass that fails leaves the progress as it was last
    /// kept.
    async fn pass(&self, progress: &mut Progress, journal: &mut impl Journal) -> Result<(), Failure> {
        let mut aside = Aside::new(progress);
        // Boxed, as are the steps that are rarely needed: without optimisation a thread's stack is soon full.
        let (halt, stop) = self.stop.child();
        let wanted = progress.storage_version_hash.clone();
        let hold = Hold::default();
        let mut rewrite = Box::pin(self.rewrite(progress, &mut aside, journal, &stop, &hold));
        let ended = tokio::select! {
            biased;
            ended = &mut rewrite => ended,
            moved = Box::pin(self.until_moved(&wanted, &hold)) => {
                halt.cancel();
                match rewrite.as_mut().await {
                    Err(Failure::Unfinished(Unfinished::Stopped)) if !self.stop.is_stopped() => Err(moved),
                    ended => ended,
                }
            }
        };
        drop(rewrite);
        if ended.is_err() {
            let uncounted = aside.uncounted(progress);
            if uncounted > 0 {
                self.observer.uncounted(uncounted);
            }
            *progress = aside.kept;
        }
        ended
    }

    async fn rewrite(
        &self,
        progress: &mut Progress,
        aside: &mut Aside,
        journal: &mut impl Journal,
        stop: &Stop,
        hold: &Hold,
    ) -> Result<(), Failure> {
        let target = self.target()?;
        let server = self.cluster.server();
        self.check(progress).await?;
        if progress.fingerprint.is_none() {
            self.check_keys(progress, Patience::Running).await?;
        }
        if progress.pass().listed == 0 {
            let counted = self.unless_stopped(lookup::count_at(server, &target)).await?;
            (progress.expected, progress.began_at) = counted.unwrap_or_default();
        }
        self.observer.pass(progress);
        let rewriter = Rewriter { hold: hold.clone(), ..self.rewriter(&target, Health::default()) };
        let mut listing = self.listing(&target, progress);
        let mut page = self.unless_stopped(listing.next()).await??;
        let mut elsewhere = Elsewhere::default();
        loop {
            let began = Instant::now();
            // The next page is fetched while this one is written.
            let fetch = async {
                Ok(if page.last {
                    Ok(Ok(Page::default()))
                } else {
                    self.unless_stopped(listing.next()).await
                })
            };
            let decided = |outcome: &Outcome| self.observer.decided(outcome);
            let write = rewriter.page(&page.items, Attempt::First, stop, decided);
            let (next, mut tally) = match futures::try_join!(fetch, write) {
                Ok(both) => both,
                Err(cut) => {
                    self.keep_part(&page, &cut, began, progress, aside, journal).await?;
                    return Err(cut.into());
                }
            };
            let written = |item: &pages::Item| progress.is_written_since(&item.resource_version);
            let seems_written =
                !tally.elsewhere.is_empty() || progress.resumed && page.items.iter().any(written);
            progress.note_hidden_write(tally.answer_lost, seems_written);
            elsewhere.add(tally.elsewhere);
            tally.counts.quarantined += page.unreadable.len() as u64;
            tally.quarantined.append(&mut page.unreadable);
            let last_key = page.items.last().map(pages::Item::key);
            progress.announced = page.remaining.filter(|_| page.next.is_some());
            progress.page_done(&tally.counts, page.next.take(), last_key);
            progress.seconds += began.elapsed().as_secs_f64();
            progress.updated = restow_clock::now();
            progress.unconfirmed = !elsewhere.is_empty();
            if page.last || elsewhere.is_full() {
                let confirm = Box::pin(self.confirm(&target, progress, &mut elsewhere));
                tally.quarantined.extend(confirm.await?);
                progress.unconfirmed = false;
            }
            aside.add(tally.refused, tally.quarantined, progress);
            Box::pin(self.decide(&rewriter, aside, progress, page.last, journal)).await?;
            self.observer.page(progress);
            // Before the next write, and once more after the last.
            self.check(progress).await?;
            if page.last && progress.phase == Phase::Rewriting {
                // The next pass looks when it begins.
                return Ok(());
            }
            if page.last {
                return self.check_keys(progress, Patience::Running).await;
            }
            page = next??;
        }
    }

    /// Keeps what was done of a page before a stop, so that it is reported, and not done again.
    async fn keep_part(
        &self,
        page: &Page,
        cut: &CutShort,
        began: Instant,
        progress: &mut Progress,
        aside: &mut Aside,
        journal: &mut impl Journal,
    ) -> Result<(), Failure> {
        let last =
            usize::try_from(cut.done.listed).ok().and_then(|count| page.items.get(count.checked_sub(1)?));
        // Objects that cannot be read, or were set aside, would be passed over. A pass that verifies does the page again:
        // what was rewritten behind its first objects shows there as written since.
        let whole = page.unreadable.is_empty() && aside.is_empty() && progress.phase == Phase::Rewriting;
        let Some(last) = last.filter(|_| whole && journal.can_save_after_stop()) else {
            aside.beyond = cut.done.rewritten + cut.beyond;
            return Ok(());
        };
        aside.beyond = cut.beyond;
        progress.page_done(&cut.done, None, Some(last.key()));
        progress.announced = None;
        progress.seconds += began.elapsed().as_secs_f64();
        progress.updated = restow_clock::now();
        journal.save(progress, &[]).await?;
        aside.kept = progress.clone();
        Ok(())
    }

    pub(crate) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Unfinished> {
        self.stop.unless(work).await.ok_or(Unfinished::Stopped)
    }

    /// Tries once more just those objects that were left; those that are left still come back.
    ///
    /// The progress is ready for [`run`](Self::run) then, which verifies when none is left.
    pub async fn retry(
        &self,
        progress: &mut Progress,
        left: Vec<Quarantined>,
    ) -> Result<Vec<Quarantined>, Failure> {
        progress.verified = false;
        self.check(progress).await?;
        let target = self.target()?;
        // They were given up while the server was well, and are tried just as often once more.
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
                    // A pass over all objects would find one that is stored under another name.
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
            manner: self.settings.manner,
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
        match streams {
            // A token is gone on with.
            true if token.is_none() => Listing::Stream(Stream::new(
                server,
                target,
                page_size,
                progress.last_key.clone(),
                self.observer,
                self.throttle,
            )),
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

    /// Where the resource's objects are.
    pub fn target(&self) -> Result<Target, Failure> {
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
            "answers to writes were lost in each of {} passes, and the objects were written: whether by restow itself \
             cannot be told",
            progress.passes
        )
    } else {
        format!("API servers came, went or started anew in each of {} passes", progress.passes)
    }
}
