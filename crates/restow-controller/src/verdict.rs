//! What the end of a run means for its migration: its condition, and when it is attempted again.

use std::time::Duration;

use restow_api::{Reason, StorageVersionMigration};
use restow_core::controller::condition::{self, Stage};
use restow_core::controller::supersession;
use restow_core::rewrite::progress::Progress;
use restow_migrate::list::PageError;
use restow_migrate::migration::Failure;
use restow_migrate::rewrite::Unfinished;

use crate::record::Lost;

/// How long a migration waits for the API servers to agree, before the next attempt.
pub(crate) const RETRY_SOON: Duration = Duration::from_secs(5);
/// How long a migration waits for a permission, or for a server, before the next attempt.
pub(crate) const RETRY_LATER: Duration = Duration::from_secs(30);

/// When a migration is attempted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// It has ended, or another controller has it.
    Never,
    After(Duration),
}

/// How an attempt ended, as the migration's object reports it.
#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) stage: Stage,
    pub(crate) reason: Reason,
    pub(crate) message: String,
    pub(crate) requeue: Requeue,
    /// Whether the progress is discarded.
    pub(crate) forget: bool,
}

impl Verdict {
    pub(crate) fn waiting(reason: Reason, message: impl ToString, wait: Duration) -> Self {
        Self {
            stage: Stage::Waiting,
            reason,
            message: message.to_string(),
            requeue: Requeue::After(wait),
            forget: false,
        }
    }

    pub(crate) fn failed(reason: Reason, message: impl ToString) -> Self {
        Self {
            stage: Stage::Failed,
            reason,
            message: message.to_string(),
            requeue: Requeue::Never,
            forget: false,
        }
    }
}

/// Why an attempt ended before its run was complete.
pub(crate) enum AttemptError {
    /// The attempt itself decided how it ends.
    Verdict(Verdict),
    /// The run failed.
    Failure(Failure),
    /// The migration's object can no longer be written.
    Lost(Lost),
}

impl From<Verdict> for AttemptError {
    fn from(verdict: Verdict) -> Self {
        Self::Verdict(verdict)
    }
}

impl From<Failure> for AttemptError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Lost> for AttemptError {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

/// Fails a migration that was created for another version, or another key, than the API servers use now.
pub(crate) fn superseded(object: &StorageVersionMigration, progress: &Progress) -> Option<Failure> {
    supersession::superseded(&object.spec, progress).map(Failure::Moved)
}

/// Decides what the end of a run means for its migration.
pub(crate) fn judge(result: Result<Progress, Failure>, object: &StorageVersionMigration) -> Verdict {
    let failure = match result {
        Ok(progress) if progress.verified => {
            return Verdict {
                stage: Stage::Succeeded,
                reason: Reason::Verified,
                message: condition::summary(&progress),
                requeue: Requeue::Never,
                forget: false,
            };
        }
        Ok(progress) if progress.counts.quarantined + progress.verify.quarantined > 0 => {
            let message = format!(
                "{}; status.quarantined names them; once fixed, run: restow retry {}",
                condition::summary(&progress),
                object.metadata.name.as_deref().unwrap_or_default()
            );
            return Verdict::failed(Reason::Quarantined, message);
        }
        Ok(progress) => return Verdict::failed(Reason::Unverified, condition::summary(&progress)),
        Err(failure) => failure,
    };
    let text = failure.to_string();
    match failure {
        // A server that stores another version may have overwritten what was rewritten before.
        Failure::Disagreement(why) => Verdict {
            forget: true,
            ..Verdict::waiting(Reason::WaitingForAgreement, format!("{text}; {}", why.advice()), RETRY_SOON)
        },
        Failure::Moved(_) if object.spec.storage_version_hash.is_some() => {
            Verdict::failed(Reason::StorageVersionChanged, text)
        }
        Failure::Moved(_) => {
            Verdict { forget: true, ..Verdict::waiting(Reason::StorageVersionChanged, text, RETRY_SOON) }
        }
        Failure::Restless(_) => Verdict::failed(Reason::Restless, text),
        Failure::Page(PageError::Refused { code: 401, .. }) => {
            Verdict::waiting(Reason::Unauthorized, text, RETRY_LATER)
        }
        Failure::Page(PageError::Refused { code: 403, .. }) => {
            Verdict::waiting(Reason::Forbidden, text, RETRY_LATER)
        }
        // For example a webhook that is down. The progress is kept.
        Failure::Page(PageError::Unavailable { .. }) | Failure::Unfinished(Unfinished::Unavailable(_)) => {
            Verdict::waiting(Reason::WaitingForServer, text, RETRY_LATER)
        }
        Failure::Page(_) => Verdict::failed(Reason::ListRefused, text),
        Failure::Unfinished(_) => Verdict::waiting(Reason::Unauthorized, text, RETRY_LATER),
        Failure::Request(error) if error.code() == Some(401) => {
            Verdict::waiting(Reason::Unauthorized, text, RETRY_LATER)
        }
        Failure::Request(error) if error.code() == Some(403) => {
            Verdict::waiting(Reason::Forbidden, text, RETRY_LATER)
        }
        Failure::Request(_) => Verdict::waiting(Reason::WaitingForServer, text, RETRY_SOON),
        Failure::Journal(_) => Verdict::waiting(Reason::WaitingForServer, text, RETRY_SOON),
    }
}

/// Decides when a migration is attempted again whose object could not be written: the server may accept a refused write
/// later.
pub(crate) fn requeue_after(lost: &Lost) -> Requeue {
    match lost {
        Lost::Refused(_) => Requeue::After(RETRY_LATER),
        Lost::Gone | Lost::Taken | Lost::Stopped => Requeue::Never,
    }
}

#[cfg(test)]
mod tests;
