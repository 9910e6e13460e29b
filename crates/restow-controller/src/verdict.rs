//! What the end of a run means for its migration: what its object says, and when it runs again.

use std::time::Duration;

use restow_api::{Reason, StorageVersionMigration};
use restow_core::controller::condition::{self, Stage};
use restow_core::rewrite::progress::Progress;
use restow_migrate::migration::Failure;
use restow_migrate::pages::PageError;
use restow_migrate::rewrite::Unfinished;

use crate::record::Lost;

/// How long one waits that the API servers do not agree on.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How long one waits that lacks a right, or whose server cannot be asked.
pub(crate) const TRY_AGAIN: Duration = Duration::from_secs(30);

/// When a migration is attempted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// It has ended, or another controller has it.
    Never,
    After(Duration),
}

/// How an attempt ended, as its object tells it.
#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) stage: Stage,
    pub(crate) reason: Reason,
    pub(crate) message: String,
    pub(crate) after: Requeue,
    /// Whether what was done counts for nothing now.
    pub(crate) forget: bool,
}

impl Verdict {
    pub(crate) fn waiting(reason: Reason, message: impl ToString, wait: Duration) -> Self {
        Self {
            stage: Stage::Waiting,
            reason,
            message: message.to_string(),
            after: Requeue::After(wait),
            forget: false,
        }
    }

    pub(crate) fn failed(reason: Reason, message: impl ToString) -> Self {
        Self {
            stage: Stage::Failed,
            reason,
            message: message.to_string(),
            after: Requeue::Never,
            forget: false,
        }
    }
}

/// A migration that is for another version, or another key, than the API servers use now.
pub(crate) fn superseded(object: &StorageVersionMigration, progress: &Progress) -> Option<Failure> {
    let spec = &object.spec;
    let other = |wanted: &Option<String>, now: Option<&String>| {
        wanted.as_ref().filter(|wanted| now.is_some_and(|now| now != *wanted)).cloned()
    };
    if let Some(wanted) = other(&spec.storage_version_hash, Some(&progress.storage_version_hash)) {
        let now = &progress.storage_version_hash;
        return Some(Failure::Moved(format!(
            "it is for storage version {wanted}, the API servers use {now} now"
        )));
    }
    let wanted = other(&spec.encryption_config_hash, progress.encryption.as_ref())?;
    let now = progress.encryption.clone().unwrap_or_default();
    Some(Failure::Moved(format!(
        "it is for encryption configuration {wanted}, the API servers use {now} now"
    )))
}

/// What the end of a run means for its object.
pub(crate) fn judge(result: Result<Progress, Failure>, object: &StorageVersionMigration) -> Verdict {
    let failure = match result {
        Ok(progress) if progress.verified => {
            return Verdict {
                stage: Stage::Succeeded,
                reason: Reason::Verified,
                message: condition::summary(&progress),
                after: Requeue::Never,
                forget: false,
            };
        }
        Ok(progress) if progress.counts.quarantined + progress.verify.quarantined > 0 => {
            let message = format!(
                "{}; status.quarantined names them, and `restow retry {}` tries them once more",
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
        // What was written before may have been written over by a server that stores another version.
        Failure::Disagreement(why) => Verdict {
            forget: true,
            ..Verdict::waiting(Reason::WaitingForAgreement, format!("{text}; {}", why.advice()), ASK_AGAIN)
        },
        Failure::Moved(_) if object.spec.storage_version_hash.is_some() => {
            Verdict::failed(Reason::StorageVersionChanged, text)
        }
        Failure::Moved(_) => {
            Verdict { forget: true, ..Verdict::waiting(Reason::StorageVersionChanged, text, ASK_AGAIN) }
        }
        Failure::Restless(_) => Verdict::failed(Reason::Restless, text),
        Failure::Page(PageError::Refused { code: 401, .. }) => {
            Verdict::waiting(Reason::Unauthorized, text, TRY_AGAIN)
        }
        Failure::Page(PageError::Refused { code: 403, .. }) => {
            Verdict::waiting(Reason::Forbidden, text, TRY_AGAIN)
        }
        // A webhook that is down, say; what was done stays done.
        Failure::Page(PageError::Unavailable { .. }) | Failure::Unfinished(Unfinished::Unavailable(_)) => {
            Verdict::waiting(Reason::WaitingForServer, text, TRY_AGAIN)
        }
        Failure::Page(_) => Verdict::failed(Reason::ListRefused, text),
        Failure::Unfinished(_) => Verdict::waiting(Reason::Unauthorized, text, TRY_AGAIN),
        Failure::Request(error) if error.code() == Some(401) => {
            Verdict::waiting(Reason::Unauthorized, text, TRY_AGAIN)
        }
        Failure::Request(error) if error.code() == Some(403) => {
            Verdict::waiting(Reason::Forbidden, text, TRY_AGAIN)
        }
        Failure::Request(_) => Verdict::waiting(Reason::WaitingForServer, text, ASK_AGAIN),
        Failure::Journal(_) => Verdict::waiting(Reason::WaitingForServer, text, ASK_AGAIN),
    }
}

/// What becomes of a migration whose object cannot be written: one that the server refuses may be taken later, and is
/// not begun anew before that.
pub(crate) fn after_loss(lost: &Lost) -> Requeue {
    match lost {
        Lost::Refused(_) => Requeue::After(TRY_AGAIN),
        Lost::Gone | Lost::Taken | Lost::Stopped => Requeue::Never,
    }
}

#[cfg(test)]
mod tests;
