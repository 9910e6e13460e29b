//! The migration of one resource, from agreement to proof.

use std::time::Duration;

use restow_clock::Instant;
use restow_core::agreement::{self, Agreement, Disagreement};
use restow_core::inventory::Resource;
use restow_core::outcome::Outcome;
use restow_core::progress::{Counts, Phase, Progress, Proof, Quarantined, judge};
use restow_core::trigger::Word;

use crate::chunks::Chunks;
use crate::cluster::{AgreementError, Cluster};
use crate::discovery;
use crate::health::Health;
use crate::lookup::{self, Found};
use crate::pages::{self, Listing, Page, PageError, Target, Waiting};
use crate::rewrite::{Manner, Rewriter, Unfinished};
use crate::server::RequestError;
use crate::stop::Stop;
use crate::stream::Stream;
use crate::throttle::Throttle;

/// How objects are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListMode {
    /// In chunks.
    #[default]
    Chunked,
    /// As one stream, where the server can.
    Streaming,
}

/// How a migration is done.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Objects in a page: what is sent again at most after a crash.
    pub page_size: u32,
    /// How objects are listed.
    pub list: ListMode,
    /// Whether a second pass has to find nothing to rewrite.
    pub verify: bool,
    /// How objects are written.
    pub manner: Manner,
    /// Whether the API servers must agree on their encryption configuration too.
    pub encrypted: bool,
}

/// Where progress is kept between pages.
pub trait Journal {
    /// Keeps the progress, and the objects of the page that were left.
    ///
    /// Once this has returned, a crash resumes behind this page.
    fn save(
        &mut self,
        progress: &Progress,
        left: &[Quarantined],
    ) -> impl Future<Output = std::io::Result<()>> + Send;
}

/// Somebody who watches a migration.
pub trait Observer: Waiting + Sync {
    /// A CRD was changed just now: its handlers are given time to follow.
    fn settling(&self, wait: Duration);
    /// A pass begins.
    fn pass(&self, progress: &Progress);
    /// An object was decided.
    fn decided(&self, outcome: &Outcome);
    /// A page was finished and kept.
    fn page(&self, progress: &Progress);
}

/// Why a migration ended early. What was kept stays kept.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The API servers do not agree.
    #[error("{0}")]
    Disagreement(Disagreement),
    /// The storage version changed under the run.
    #[error("{0}")]
    Moved(String),
    /// Objects change with every write, or servers come and go.
    #[error("{0}")]
    Restless(String),
    /// No page can be had.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A page could not be finished.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The progress cannot be kept.
    #[error("keeping the progress")]
    Journal(#[from] std::io::Error),
    /// The server did not answer what is needed before the first write.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// How long servers that do not answer are waited for in the middle of a run, before it is unsafe to go on.
const SILENCE: Duration = Duration::from_secs(300);
/// How often they are asked meanwhile.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The migration of one resource.
pub struct Migration<'a, O> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The resource.
    pub resource: &'a Resource,
    /// How.
    pub settings: Settings,
    /// How fast.
    pub throttle: &'a Throttle,
    /// Who watches.
    pub observer: &'a O,
    /// Stops it.
    pub stop: &'a Stop,
}

impl<O: Observer> Migration<'_, O> {
    /// Waits until a fresh definition has settled, and takes the agreement the run is for.
    pub async fn begin(&self) -> Result<Progress, Failure> {
        self.settle().await?;
        let agreement = match self.unless_stopped(self.cluster.agreement(self.resource)).await? {
            Ok(agreement) => agreement,
            Err(AgreementError::Disagreement(why)) => return Err(Failure::Disagreement(why)),
            Err(AgreementError::Request(error)) => return Err(error.into()),
        };
        let hash = self.resource.hash.clone().unwrap_or_default();
        if agreement.hash != hash {
            return Err(Failure::Moved(format!(
                "the storage version is changing: the API servers say {}, it should be {hash}",
                agreement.hash
            )));
        }
        let version = self.resource.storage_version_name();
        let name = self.resource.name.clone();
        let mut progress = Progress::new(name, version, &agreement.hash, restow_clock::now());
        if self.settings.encrypted {
            progress.encryption = self.sealed().await?.map(|(hash, _)| hash);
        }
        Ok(progress)
    }

    /// Takes a migration from where its progress is to its end.
    pub async fn run(&self, progress: &mut Progress, journal: &mut impl Journal) -> Result<(), Failure> {
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
            match judge(&progress.verify, progress.shifted, progress.passes) {
                Proof::Verified => progress.verified = true,
                Proof::Again => progress.begin_verifying(),
                Proof::Restless => return Err(Failure::Restless(restless(progress))),
            }
        }
        progress.phase = Phase::Done;
        journal.save(progress, &[]).await?;
        Ok(())
    }

    /// Rewrites all objects once, from where the progress is.
    async fn pass(&self, progress: &mut Progress, journal: &mut impl Journal) -> Result<(), Failure> {
        let target = self.target()?;
        let server = self.cluster.server();
        self.check(progress).await?;
        self.check_seal(progress).await?;
        if progress.pass().listed == 0 {
            progress.expected = self.unless_stopped(lookup::count(server, &target)).await?.ok().flatten();
        }
        self.observer.pass(progress);
        let rewriter = self.rewriter(&target, Health::default());
        let mut listing = self.listing(&target, progress);
        let mut page = self.unless_stopped(listing.next()).await??;
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
            let write = rewriter.page(&page.items, self.stop, |outcome| self.observer.decided(outcome));
            let (next, mut tally) = futures::try_join!(fetch, write)?;
            tally.counts.quarantined += page.unreadable.len() as u64;
            tally.quarantined.append(&mut page.unreadable);
            let last_key = page.items.last().map(pages::Item::key);
            progress.page_done(&tally.counts, page.next.take(), last_key);
            progress.seconds += began.elapsed().as_secs_f64();
            progress.updated = restow_clock::now();
            journal.save(progress, &tally.quarantined).await?;
            self.observer.page(progress);
            // Before the next write, and once more after the last.
            self.check(progress).await?;
            if page.last {
                return self.check_seal(progress).await;
            }
            page = next??;
        }
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
        self.check(progress).await?;
        let target = self.target()?;
        // They were given up while the server was well, and are tried just as often once more.
        let rewriter = self.rewriter(&target, Health::assumed());
        progress.phase = Phase::Done;
        progress.counts.quarantined = 0;
        progress.verify = Counts::default();
        progress.verified = false;
        progress.passes = 0;
        let mut still = Vec::new();
        for some in left.chunks(self.settings.page_size as usize) {
            self.check(progress).await?;
            let mut items = Vec::new();
            for object in some {
                let find = lookup::find(self.cluster.server(), &target, object);
                match self.unless_stopped(find).await?? {
                    Found::Item(item) => items.push(item),
                    Found::Gone => progress.counts.gone += 1,
                    Found::Unreadable => {
                        progress.counts.quarantined += 1;
                        still.push(object.clone());
                    }
                }
            }
            let mut tally =
                rewriter.page(&items, self.stop, |outcome| self.observer.decided(outcome)).await?;
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
        }
    }

    fn listing<'t>(&'t self, target: &'t Target, progress: &Progress) -> Listing<'t> {
        let (server, page_size) = (self.cluster.server(), self.settings.page_size);
        let token = progress.continue_token.clone();
        match self.settings.list {
            ListMode::Streaming if token.is_none() => Listing::Stream(Stream::new(
                server,
                target,
                page_size,
                progress.last_key.clone(),
                self.observer,
            )),
            _ => {
                let behind = || {
                    let key = progress.last_key.as_deref()?;
                    Some(restow_core::token::Token::behind(key, restow_core::token::NEWEST).encode())
                };
                let token = token.or_else(behind);
                Listing::Chunks(Chunks::new(server, target, page_size, token, self.observer))
            }
        }
    }

    /// Where the resource's objects are.
    pub fn target(&self) -> Result<Target, Failure> {
        Ok(Target::of(self.resource).ok_or_else(|| PageError::Vanished(self.resource.name.clone()))?)
    }

    /// Looks at the servers: another version than the run's ends it before its next write.
    pub async fn check(&self, progress: &mut Progress) -> Result<(), Failure> {
        let agreement = self.wait_for_agreement(progress).await?;
        progress.watch(&agreement);
        Ok(())
    }

    /// The agreement as it is now, for the version of this run. Servers that are silent are waited for, because
    /// nothing is written meanwhile; servers that say otherwise end the run at once.
    async fn wait_for_agreement(&self, progress: &Progress) -> Result<Agreement, Failure> {
        let since = Instant::now();
        loop {
            let silent = match self.unless_stopped(self.cluster.agreement(self.resource)).await? {
                Ok(agreement) if agreement.hash == progress.storage_version_hash => return Ok(agreement),
                Ok(agreement) => {
                    return Err(Failure::Moved(format!(
                        "the storage version changed under the run: it was for {}, the API servers say {} now",
                        progress.storage_version_hash, agreement.hash
                    )));
                }
                Err(AgreementError::Disagreement(why @ Disagreement::Unasked(_)))
                    if since.elapsed() < SILENCE =>
                {
                    why.to_string()
                }
                Err(AgreementError::Disagreement(why)) => return Err(Failure::Disagreement(why)),
                Err(AgreementError::Request(error)) => match error.code() {
                    Some(404) => return Err(PageError::Vanished(self.resource.name.clone()).into()),
                    Some(_) if error.is_final() => return Err(error.into()),
                    // A server that is down or overloaded is never given up.
                    _ => error.to_string(),
                },
            };
            self.observer.waiting(&silent, ASK_EVERY);
            self.unless_stopped(tokio::time::sleep(ASK_EVERY)).await?;
        }
    }

    /// Looks at the encryption configuration, at both ends of a pass: servers' metrics are too large for every page,
    /// and tell when a configuration was taken up in between.
    async fn check_seal(&self, progress: &mut Progress) -> Result<(), Failure> {
        let Some(wanted) = progress.encryption.clone() else { return Ok(()) };
        match self.sealed().await? {
            Some((hash, seal)) if hash == wanted => progress.watch_seal(&seal),
            _ => {
                return Err(Failure::Moved(format!(
                    "the encryption configuration changed under the run, which was for {wanted}"
                )));
            }
        }
        Ok(())
    }

    /// The configuration all servers encrypt by, and its seal; none where there is none to be seen.
    async fn sealed(&self) -> Result<Option<(String, String)>, Failure> {
        let since = Instant::now();
        loop {
            let silent = match self.unless_stopped(self.cluster.encryption()).await? {
                Ok(encryption) => match encryption.word {
                    None => return Ok(None),
                    Some(Word::Agreed(hash)) => return Ok(Some((hash, encryption.seal))),
                    Some(Word::Split(hashes)) => {
                        return Err(Failure::Disagreement(Disagreement::Encryption(hashes)));
                    }
                    Some(Word::Silent(_)) if since.elapsed() < SILENCE => {
                        Disagreement::Unasked(encryption.unasked).to_string()
                    }
                    Some(Word::Silent(_)) => {
                        return Err(Failure::Disagreement(Disagreement::Unasked(encryption.unasked)));
                    }
                },
                // Who may not read metrics goes by the storage version alone.
                Err(error) if error.is_final() => return Ok(None),
                Err(error) => error.to_string(),
            };
            self.observer.waiting(&silent, ASK_EVERY);
            self.unless_stopped(tokio::time::sleep(ASK_EVERY)).await?;
        }
    }

    /// A CRD's discovery can change before its handlers do (kubernetes#130235).
    async fn settle(&self) -> Result<(), Failure> {
        let Some(crd) = &self.resource.crd else { return Ok(()) };
        let (now, date) = discovery::crd(self.cluster.server(), &crd.name).await?;
        let wait = agreement::settle(now.changed, date.unwrap_or_else(restow_clock::now));
        if wait.is_zero() {
            return Ok(());
        }
        self.observer.settling(wait);
        Ok(self.unless_stopped(tokio::time::sleep(wait)).await?)
    }
}

fn restless(progress: &Progress) -> String {
    if progress.verify.rewritten > 0 {
        format!(
            "{} objects were rewritten again in pass {}: something changes them with every write, such as a \
             mutating webhook, so that no pass can prove them stored",
            progress.verify.rewritten,
            progress.passes + 1
        )
    } else {
        format!("API servers came, went or started anew in each of {} passes", progress.passes)
    }
}
