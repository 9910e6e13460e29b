//! Checks during a run that the API servers still agree and the CRD has settled: before the first write and between pages.

use std::time::Duration;

use restow_clock::Instant;
use restow_core::agreement;
use restow_core::agreement::transient;
use restow_core::agreement::version::Agreement;
use restow_core::rewrite::progress::Progress;

use super::setup::{Migration, MigrationError, Observer};
use crate::client::RequestError;
use crate::cluster::changes::Changes;
use crate::cluster::{AgreementError, discovery};
use crate::list::PageError;
use crate::rewrite::hold::Hold;

/// The pause between two requests to servers that the run waits for.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How many times the servers are asked after an event: they publish a new storage version a few seconds after it.
const ASKS_AFTER_EVENT: u32 = 6;

fn moved(wanted: &str, now: &str) -> MigrationError {
    MigrationError::Moved(format!(
        "the storage version changed during the run, which was for {wanted}; the API servers publish {now} now"
    ))
}

/// How far a run is when it checks the servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has written nothing yet.
    Starting,
    /// Every server was reachable before.
    Running,
}

impl<O: Observer> Migration<'_, O> {
    /// Checks that the API servers still agree on the version of this run; if not, the run ends before its next write.
    ///
    /// If the CRD has changed, this waits for it to settle, because handlers may still store the former version.
    pub async fn check(&self, progress: &mut Progress) -> Result<(), MigrationError> {
        loop {
            let agreement = self.wait_for_agreement(progress).await?;
            progress.observe_agreement(&agreement);
            if agreement.definition.is_none() || agreement.definition == progress.settled {
                return Ok(());
            }
            self.settle(progress, Stage::Running).await?;
        }
    }

    /// The current agreement on the version of this run. It waits for silent servers, because nothing is written meanwhile.
    /// A server with another version ends the run at once.
    async fn wait_for_agreement(&self, progress: &Progress) -> Result<Agreement, MigrationError> {
        let agreement = self.agreement(Stage::Running).await?;
        if agreement.hash == progress.storage_version_hash {
            return Ok(agreement);
        }
        Err(moved(&progress.storage_version_hash, &agreement.hash))
    }

    /// Watches for changes, and returns once the API servers no longer agree on the storage version of this run. That may
    /// be in the middle of a page. After an event no write is sent until the servers were asked.
    pub(super) async fn until_moved(&self, wanted: &str, hold: &Hold) -> MigrationError {
        let mut changes = Changes::of(self.cluster.server(), self.resource);
        loop {
            changes.next().await;
            for _ in 0..ASKS_AFTER_EVENT {
                hold.set();
                match Box::pin(self.agreement(Stage::Running)).await {
                    Ok(agreement) if agreement.hash == wanted => hold.release(),
                    Ok(agreement) => return moved(wanted, &agreement.hash),
                    Err(failure) => return failure,
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        }
    }

    /// The current agreement.
    pub(super) async fn agreement(&self, stage: Stage) -> Result<Agreement, MigrationError> {
        let known = self.is_known(stage);
        let since = Instant::now();
        loop {
            let asked = Box::pin(self.cluster.agreement(self.resource));
            let silent = match self.unless_stopped(asked).await? {
                Ok(agreement) => return Ok(agreement),
                Err(AgreementError::Disagreement(why))
                    if since.elapsed() < agreement::version::disagreement_timeout(&why, known) =>
                {
                    why.to_string()
                }
                Err(AgreementError::Disagreement(why)) => return Err(MigrationError::Disagreement(why)),
                Err(AgreementError::Request(error)) => self.passing(error, known, since)?,
                Err(AgreementError::Undefined) => return Err(self.vanished()),
            };
            self.wait(&silent).await?;
        }
    }

    /// Whether every server answered before, in this run or for another resource.
    fn is_known(&self, stage: Stage) -> bool {
        stage == Stage::Running || self.cluster.has_agreed()
    }

    fn vanished(&self) -> MigrationError {
        PageError::Vanished(self.resource.name.clone()).into()
    }

    /// The message of a failed request that is worth retrying; an error if it is not.
    ///
    /// A server that is down or overloaded is always retried. If a server has answered before and refuses now, a proxy may
    /// have answered. Before the first agreement a missing permission is an error at once; the inventory has shown that
    /// the credentials are accepted.
    fn passing(&self, error: RequestError, known: bool, since: Instant) -> Result<String, MigrationError> {
        let known = known || error.code() != Some(403);
        if !error.is_final() || known && since.elapsed() < transient::TRANSIENT_ANSWER_TIMEOUT {
            return Ok(error.to_string());
        }
        Err(if error.code() == Some(404) { self.vanished() } else { error.into() })
    }

    pub(super) async fn wait(&self, why: &str) -> Result<(), MigrationError> {
        self.observer.waiting(why, ASK_EVERY);
        Ok(self.unless_stopped(tokio::time::sleep(ASK_EVERY)).await?)
    }

    /// Waits for a CRD to settle: its discovery can change before its handlers do (kubernetes#130235).
    pub(super) async fn settle(&self, progress: &mut Progress, stage: Stage) -> Result<(), MigrationError> {
        let Some(crd) = &self.resource.crd else { return Ok(()) };
        let known = self.is_known(stage);
        let since = Instant::now();
        let (now, date) = loop {
            let error = match self.unless_stopped(discovery::crd(self.cluster.server(), &crd.name)).await? {
                Ok(read) => break read,
                Err(error) => error,
            };
            let error = match self.unless_stopped(self.cluster.undefined(self.resource, error)).await? {
                AgreementError::Request(error) => error,
                _ => return Err(self.vanished()),
            };
            let silent = self.passing(error, known, since)?;
            self.wait(&silent).await?;
        };
        let definition = now.definition();
        let wait = match &progress.settled {
            Some(settled) if *settled == definition => Duration::ZERO,
            // It changed during the run, at an unknown time.
            Some(_) => agreement::version::CRD_SETTLE_TIME,
            None => agreement::version::settle(now.changed, date.unwrap_or_else(restow_clock::now)),
        };
        if !wait.is_zero() {
            self.observer.settling(wait);
            self.unless_stopped(tokio::time::sleep(wait)).await?;
        }
        progress.settled = Some(definition);
        Ok(())
    }
}
