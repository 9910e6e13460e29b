//! Looks of a run at the API servers and at the definition: between two pages, and before the first write.

use std::time::Duration;

use restow_clock::Instant;
use restow_core::agreement;
use restow_core::agreement::transient;
use restow_core::agreement::version::Agreement;
use restow_core::rewrite::progress::Progress;

use super::setup::{Failure, Migration, Observer};
use crate::client::RequestError;
use crate::cluster::changes::Changes;
use crate::cluster::{AgreementError, discovery};
use crate::list::PageError;
use crate::rewrite::hold::Hold;

/// How often servers are asked that are waited for.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How many times the servers are asked after an event: they publish a new storage version a few seconds after it.
const ASKS_AFTER_EVENT: u32 = 6;

fn moved(wanted: &str, now: &str) -> Failure {
    Failure::Moved(format!(
        "the storage version changed under the run: it was for {wanted}, the API servers say {now} now"
    ))
}

/// How far a run is when it looks at the servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Nothing was written yet.
    Beginning,
    /// It was possible to ask every server before.
    Running,
}

impl<O: Observer> Migration<'_, O> {
    /// Looks at the servers: another version than the run's ends it before its next write.
    ///
    /// A definition that has changed is given time to settle, so that no pass stands under one whose handlers may
    /// still store what was before.
    pub async fn check(&self, progress: &mut Progress) -> Result<(), Failure> {
        loop {
            let agreement = self.wait_for_agreement(progress).await?;
            progress.observe_agreement(&agreement);
            if agreement.definition.is_none() || agreement.definition == progress.settled {
                return Ok(());
            }
            self.settle(progress, Patience::Running).await?;
        }
    }

    /// The agreement as it is now, for the version of this run. Servers that are silent are waited for, because
    /// nothing is written meanwhile; servers that say otherwise end the run at once.
    async fn wait_for_agreement(&self, progress: &Progress) -> Result<Agreement, Failure> {
        let agreement = self.agreement(Patience::Running).await?;
        if agreement.hash == progress.storage_version_hash {
            return Ok(agreement);
        }
        Err(moved(&progress.storage_version_hash, &agreement.hash))
    }

    /// Watches for changes, and returns once the API servers no longer agree on the storage version of this run. That may
    /// be in the middle of a page. After an event no write is sent until the servers were asked.
    pub(super) async fn until_moved(&self, wanted: &str, hold: &Hold) -> Failure {
        let mut changes = Changes::of(self.cluster.server(), self.resource);
        loop {
            changes.next().await;
            for _ in 0..ASKS_AFTER_EVENT {
                hold.set();
                match Box::pin(self.agreement(Patience::Running)).await {
                    Ok(agreement) if agreement.hash == wanted => hold.release(),
                    Ok(agreement) => return moved(wanted, &agreement.hash),
                    Err(failure) => return failure,
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        }
    }

    /// The agreement as it is now.
    pub(super) async fn agreement(&self, patience: Patience) -> Result<Agreement, Failure> {
        let known = self.is_known(patience);
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
                Err(AgreementError::Disagreement(why)) => return Err(Failure::Disagreement(why)),
                Err(AgreementError::Request(error)) => self.passing(error, known, since)?,
                Err(AgreementError::Undefined) => return Err(self.vanished()),
            };
            self.wait(&silent).await?;
        }
    }

    /// Whether every server was heard before: by this run, or for another resource.
    fn is_known(&self, patience: Patience) -> bool {
        patience == Patience::Running || self.cluster.has_agreed()
    }

    fn vanished(&self) -> Failure {
        PageError::Vanished(self.resource.name.clone()).into()
    }

    /// What is waited for after a failed request; an error when waiting does not help.
    ///
    /// A server that is down or overloaded is never given up. One that has answered before and refuses now may not be
    /// the one that answers. Before the first agreement a missing right is told at once; what there is, and that the
    /// credentials are accepted, the inventory has shown.
    fn passing(&self, error: RequestError, known: bool, since: Instant) -> Result<String, Failure> {
        let known = known || error.code() != Some(403);
        if !error.is_final() || known && since.elapsed() < transient::TRANSIENT_ANSWER_TIMEOUT {
            return Ok(error.to_string());
        }
        Err(if error.code() == Some(404) { self.vanished() } else { error.into() })
    }

    pub(super) async fn wait(&self, why: &str) -> Result<(), Failure> {
        self.observer.waiting(why, ASK_EVERY);
        Ok(self.unless_stopped(tokio::time::sleep(ASK_EVERY)).await?)
    }

    /// A CRD's discovery can change before its handlers do (kubernetes#130235), so it is given time.
    pub(super) async fn settle(&self, progress: &mut Progress, patience: Patience) -> Result<(), Failure> {
        let Some(crd) = &self.resource.crd else { return Ok(()) };
        let known = self.is_known(patience);
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
            // It changed under the run, at a time that was not seen.
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
