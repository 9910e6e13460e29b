//! What `suspend`, `resume` and `retry` do to a migration, and when they have taken effect.

use jiff::Timestamp;
use restow_api::{ConditionType, StorageVersionMigration};

use crate::controller::condition::Stage;
use crate::rewrite::progress::End;

/// What a user requests of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Stop within a page.
    Suspend,
    /// Continue a suspended migration.
    Resume,
    /// Try again what a failed migration left.
    Retry,
}

/// What a request does to a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The migration is changed.
    Change,
    /// The migration has ended, so there is nothing to suspend.
    Finished(Stage),
    /// The migration is suspended already.
    AlreadySuspended,
    /// The migration is not suspended, so there is nothing to resume.
    NotSuspended,
    /// A retry was requested before and has not begun yet.
    RetryPending,
    /// Refused: the migration succeeded and left nothing to retry.
    NothingToRetry,
    /// Refused: only a failed migration can be retried.
    NotFailed(Stage),
}

/// Decides what a request does to a migration.
pub fn effect(request: Request, migration: &StorageVersionMigration) -> Effect {
    let stage = Stage::of(migration.status.as_ref());
    match (request, stage) {
        (Request::Suspend, Stage::Succeeded | Stage::Failed) => Effect::Finished(stage),
        (Request::Suspend, _) if migration.is_suspended() => Effect::AlreadySuspended,
        (Request::Resume, _) if !migration.is_suspended() => Effect::NotSuspended,
        (Request::Suspend | Request::Resume, _) => Effect::Change,
        (Request::Retry, Stage::Failed) if migration.retry_requested() => Effect::RetryPending,
        (Request::Retry, Stage::Failed) => Effect::Change,
        (Request::Retry, Stage::Succeeded) => Effect::NothingToRetry,
        (Request::Retry, _) => Effect::NotFailed(stage),
    }
}

/// How a request ended, once it has taken effect on a migration that was `before` when it was made.
///
/// A retry ends only after it has `begun`; the caller keeps that between observations.
pub fn ended(
    request: Request,
    before: &StorageVersionMigration,
    now: &StorageVersionMigration,
    begun: &mut bool,
) -> Option<End> {
    let stage = Stage::of(now.status.as_ref());
    let finished = matches!(stage, Stage::Succeeded | Stage::Failed);
    match request {
        Request::Suspend => (finished || stage == Stage::Suspended).then_some(End::Succeeded),
        Request::Resume => (finished || stage == Stage::Running).then_some(End::Succeeded),
        Request::Retry => {
            // The controller removes the request and changes the conditions in two writes, in either order.
            *begun |= !finished || failed_at(now) != failed_at(before);
            (finished && *begun && !now.retry_requested()).then(|| match stage {
                Stage::Succeeded => End::Succeeded,
                _ if quarantined(now) > 0 => End::ObjectsLeft,
                _ => End::Failed,
            })
        }
    }
}

fn failed_at(migration: &StorageVersionMigration) -> Option<Timestamp> {
    let condition = migration.status.as_ref()?.condition(ConditionType::Failed)?;
    condition.last_update_time.as_ref().map(|time| time.0)
}

fn quarantined(migration: &StorageVersionMigration) -> u64 {
    let progress = migration.status.as_ref().and_then(|status| status.progress.as_ref());
    progress.map_or(0, |progress| progress.quarantined)
}

#[cfg(test)]
mod tests {
    use restow_api::{MigrationProgress, RETRY, Reason};

    use super::Stage::{Failed, Running, Succeeded, Suspended, Waiting};
    use super::*;
    use crate::controller::condition;

    fn migration(
        stage: Stage,
        second: i64,
        suspend: bool,
        retry: bool,
        left: u64,
    ) -> StorageVersionMigration {
        let mut migration = StorageVersionMigration::default();
        migration.spec.suspend = suspend.then_some(true);
        if retry {
            let annotations = migration.metadata.annotations.get_or_insert_default();
            annotations.insert(RETRY.to_owned(), String::new());
        }
        let status = migration.status.get_or_insert_default();
        condition::set(status, stage, Reason::Started, "", Timestamp::from_second(second).unwrap());
        status.progress = Some(MigrationProgress { quarantined: left, ..MigrationProgress::default() });
        migration
    }

    #[test]
    fn a_request_changes_only_a_migration_that_it_can_apply_to() {
        for (request, stage, suspended, retry, expected) in [
            (Request::Suspend, Running, false, false, Effect::Change),
            (Request::Suspend, Waiting, false, false, Effect::Change),
            (Request::Suspend, Running, true, false, Effect::AlreadySuspended),
            (Request::Suspend, Failed, false, false, Effect::Finished(Failed)),
            (Request::Suspend, Succeeded, true, false, Effect::Finished(Succeeded)),
            (Request::Resume, Suspended, true, false, Effect::Change),
            (Request::Resume, Running, false, false, Effect::NotSuspended),
            (Request::Retry, Failed, false, false, Effect::Change),
            (Request::Retry, Failed, false, true, Effect::RetryPending),
            (Request::Retry, Running, false, false, Effect::NotFailed(Running)),
            (Request::Retry, Succeeded, false, false, Effect::NothingToRetry),
        ] {
            let migration = migration(stage, 0, suspended, retry, 0);
            assert_eq!(effect(request, &migration), expected, "{request:?} {stage:?}");
        }
    }

    #[test]
    fn a_request_ends_when_the_controller_has_carried_it_out() {
        for (request, stages, expected) in [
            (Request::Suspend, &[(Running, false, 0)][..], None),
            (Request::Suspend, &[(Running, false, 0), (Suspended, false, 0)], Some(End::Succeeded)),
            (Request::Suspend, &[(Succeeded, false, 0)], Some(End::Succeeded)),
            (Request::Resume, &[(Suspended, false, 0), (Waiting, false, 0)], None),
            (Request::Resume, &[(Running, false, 0)], Some(End::Succeeded)),
            // Still as it failed before, the request taken away first or last.
            (Request::Retry, &[(Failed, true, 3)], None),
            (Request::Retry, &[(Failed, false, 3)], None),
            (Request::Retry, &[(Running, true, 3)], None),
            (Request::Retry, &[(Running, true, 3), (Succeeded, false, 0)], Some(End::Succeeded)),
            (Request::Retry, &[(Running, false, 3), (Failed, false, 3)], Some(End::ObjectsLeft)),
            (Request::Retry, &[(Running, false, 0), (Failed, false, 0)], Some(End::Failed)),
        ] {
            let before = migration(Failed, 0, false, true, 3);
            let mut begun = false;
            let mut end = None;
            for (stage, retry, left) in stages {
                end = ended(request, &before, &migration(*stage, 0, false, *retry, *left), &mut begun);
            }
            assert_eq!(end, expected, "{request:?} {stages:?}");
        }
        // The watch missed that it ran; its time tells.
        let again = migration(Failed, 5, false, false, 3);
        let before = migration(Failed, 0, false, true, 3);
        assert_eq!(ended(Request::Retry, &before, &again, &mut false), Some(End::ObjectsLeft));
    }
}
