//! Why an attempt ends, and which verdict of `restow_core::controller::verdict` follows.

use restow_api::StorageVersionMigration;
use restow_core::controller::supersession;
use restow_core::controller::verdict::{self, RETRY_LATER, Requeue, RunFailure, Verdict};
use restow_core::rewrite::progress::Progress;
use restow_migrate::list::PageError;
use restow_migrate::migration::MigrationError;
use restow_migrate::rewrite::Unfinished;

use crate::record::Lost;

/// Why an attempt ended before its run was complete.
pub(crate) enum AttemptError {
    /// The attempt itself decided how it ends.
    Verdict(Verdict),
    /// The run failed.
    Failure(MigrationError),
    /// The migration's object can no longer be written.
    Lost(Lost),
}

impl From<Verdict> for AttemptError {
    fn from(verdict: Verdict) -> Self {
        Self::Verdict(verdict)
    }
}

impl From<MigrationError> for AttemptError {
    fn from(failure: MigrationError) -> Self {
        Self::Failure(failure)
    }
}

impl From<Lost> for AttemptError {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

/// Fails a migration that was created for another version, or another key, than the API servers use now.
pub(crate) fn superseded(object: &StorageVersionMigration, progress: &Progress) -> Option<MigrationError> {
    supersession::superseded(&object.spec, progress).map(MigrationError::Moved)
}

/// Decides what a failure of a run means for its migration.
pub(crate) fn judge(failure: MigrationError, object: &StorageVersionMigration) -> Verdict {
    let message = failure.to_string();
    verdict::judge_failure(&classify(failure), &message, object.spec.storage_version_hash.is_some())
}

/// The kind of a failure, as far as the verdict depends on it.
fn classify(failure: MigrationError) -> RunFailure {
    match failure {
        MigrationError::Disagreement(why) => RunFailure::Disagreement(why),
        MigrationError::Moved(_) => RunFailure::Changed,
        MigrationError::Restless(_) => RunFailure::Restless,
        MigrationError::Page(PageError::Refused { code: 401, .. }) => RunFailure::Unauthorized,
        MigrationError::Page(PageError::Refused { code: 403, .. }) => RunFailure::Forbidden,
        MigrationError::Page(PageError::Unavailable { .. })
        | MigrationError::Unfinished(Unfinished::Unavailable(_)) => RunFailure::Unavailable,
        MigrationError::Page(_) => RunFailure::ListRefused,
        MigrationError::Unfinished(_) => RunFailure::Unauthorized,
        MigrationError::Request(error) if error.code() == Some(401) => RunFailure::Unauthorized,
        MigrationError::Request(error) if error.code() == Some(403) => RunFailure::Forbidden,
        MigrationError::Request(_) | MigrationError::Journal(_) => RunFailure::Request,
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
