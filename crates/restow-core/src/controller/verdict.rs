//! What the end of a run means for its migration: its condition, and when it is attempted again.

use std::time::Duration;

use restow_api::Reason;

use crate::agreement::version::Disagreement;
use crate::controller::condition::{self, Stage};
use crate::rewrite::progress::Progress;

/// How long a migration waits for the API servers to agree, before the next attempt.
pub const RETRY_SOON: Duration = Duration::from_secs(5);
/// How long a migration waits for a permission, or for a server, before the next attempt.
pub const RETRY_LATER: Duration = Duration::from_secs(30);

/// When a migration is attempted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Never: it has ended, or another controller has it.
    Never,
    /// After this time.
    After(Duration),
}

/// How an attempt ended, as the migration's object reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The stage to write.
    pub stage: Stage,
    /// The reason of the condition.
    pub reason: Reason,
    /// The message of the condition.
    pub message: String,
    /// When the migration is attempted again.
    pub requeue: Requeue,
    /// Whether the progress is discarded.
    pub forget: bool,
}

impl Verdict {
    /// The migration waits, and is attempted again after this time.
    pub fn waiting(reason: Reason, message: impl ToString, wait: Duration) -> Self {
        Self {
            stage: Stage::Waiting,
            reason,
            message: message.to_string(),
            requeue: Requeue::After(wait),
            forget: false,
        }
    }

    /// The migration has failed.
    pub fn failed(reason: Reason, message: impl ToString) -> Self {
        Self {
            stage: Stage::Failed,
            reason,
            message: message.to_string(),
            requeue: Requeue::Never,
            forget: false,
        }
    }
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunFailure {
    /// The API servers do not agree.
    Disagreement(Disagreement),
    /// The storage version or the encryption key changed.
    Changed,
    /// Objects or servers kept changing in every pass.
    Restless,
    /// The credentials were not accepted.
    Unauthorized,
    /// A permission is missing.
    Forbidden,
    /// Something that the API server needs is down, for example a conversion webhook.
    Unavailable,
    /// The resource cannot be listed.
    ListRefused,
    /// A request before the first write failed, or the progress could not be saved.
    Request,
}

/// Decides what a completed run means for the migration of this name.
pub fn judge_completed(progress: &Progress, name: &str) -> Verdict {
    let summary = condition::summary(progress);
    if progress.verified {
        return Verdict {
            stage: Stage::Succeeded,
            reason: Reason::Verified,
            message: summary,
            requeue: Requeue::Never,
            forget: false,
        };
    }
    if progress.counts.quarantined + progress.verify.quarantined > 0 {
        let message =
            format!("{summary}; status.quarantined names them; once fixed, run: restow retry {name}");
        return Verdict::failed(Reason::Quarantined, message);
    }
    Verdict::failed(Reason::Unverified, summary)
}

/// Decides what a run that ended early means for its migration; `pinned` if that was created for one storage version.
pub fn judge_failure(failure: &RunFailure, message: &str, pinned: bool) -> Verdict {
    match failure {
        // A server that stores another version may have overwritten what was rewritten before.
        RunFailure::Disagreement(why) => {
            let message = format!("{message}; {}", why.advice());
            Verdict { forget: true, ..Verdict::waiting(Reason::WaitingForAgreement, message, RETRY_SOON) }
        }
        RunFailure::Changed if pinned => Verdict::failed(Reason::StorageVersionChanged, message),
        RunFailure::Changed => {
            Verdict { forget: true, ..Verdict::waiting(Reason::StorageVersionChanged, message, RETRY_SOON) }
        }
        RunFailure::Restless => Verdict::failed(Reason::Restless, message),
        RunFailure::Unauthorized => Verdict::waiting(Reason::Unauthorized, message, RETRY_LATER),
        RunFailure::Forbidden => Verdict::waiting(Reason::Forbidden, message, RETRY_LATER),
        RunFailure::Unavailable => Verdict::waiting(Reason::WaitingForServer, message, RETRY_LATER),
        RunFailure::ListRefused => Verdict::failed(Reason::ListRefused, message),
        RunFailure::Request => Verdict::waiting(Reason::WaitingForServer, message, RETRY_SOON),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::resource::name::GroupResource;

    #[test]
    fn only_a_failure_that_may_go_away_is_requeued() {
        let soon = Requeue::After(RETRY_SOON);
        let later = Requeue::After(RETRY_LATER);
        for (failure, pinned, reason, requeue, forget) in [
            (
                RunFailure::Disagreement(Disagreement::ServersChanged),
                true,
                Reason::WaitingForAgreement,
                soon,
                true,
            ),
            (RunFailure::Changed, true, Reason::StorageVersionChanged, Requeue::Never, false),
            (RunFailure::Changed, false, Reason::StorageVersionChanged, soon, true),
            (RunFailure::Restless, false, Reason::Restless, Requeue::Never, false),
            (RunFailure::Unauthorized, false, Reason::Unauthorized, later, false),
            (RunFailure::Forbidden, false, Reason::Forbidden, later, false),
            (RunFailure::Unavailable, false, Reason::WaitingForServer, later, false),
            (RunFailure::ListRefused, false, Reason::ListRefused, Requeue::Never, false),
            (RunFailure::Request, false, Reason::WaitingForServer, soon, false),
        ] {
            let verdict = judge_failure(&failure, "because", pinned);
            assert_eq!(
                (verdict.reason, verdict.requeue, verdict.forget),
                (reason, requeue, forget),
                "{failure:?} {pinned}"
            );
            let stage = if requeue == Requeue::Never { Stage::Failed } else { Stage::Waiting };
            assert_eq!(verdict.stage, stage, "{failure:?}");
            assert!(verdict.message.starts_with("because"), "{verdict:?}");
        }
    }

    #[test]
    fn a_completed_run_succeeds_only_if_it_is_verified() {
        for (verified, quarantined, stage, reason) in [
            (true, 0, Stage::Succeeded, Reason::Verified),
            (false, 0, Stage::Failed, Reason::Unverified),
            (false, 2, Stage::Failed, Reason::Quarantined),
        ] {
            let mut progress =
                Progress::new(GroupResource::parse("widgets.example.com"), "v2", "b", Timestamp::UNIX_EPOCH);
            progress.verified = verified;
            progress.counts.quarantined = quarantined;
            let verdict = judge_completed(&progress, "mine");
            assert_eq!((verdict.stage, verdict.reason), (stage, reason));
            assert_eq!(verdict.requeue, Requeue::Never);
            assert_eq!(verdict.message.ends_with("restow retry mine"), quarantined > 0, "{verdict:?}");
        }
    }
}
