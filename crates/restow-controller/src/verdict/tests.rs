//! Tables of how a run ends, and what follows for its migration.

use restow_api::Reason;
use restow_core::agreement::version::Disagreement;
use restow_core::controller::condition::Stage;
use restow_core::resource::name::GroupResource;
use restow_migrate::client::RequestError;

use super::*;

#[test]
fn a_temporary_failure_waits_and_keeps_the_progress() {
    let name = || GroupResource::parse("widgets.example.com");
    let down = || "the webhook is down".to_owned();
    let unreadable = PageError::Unavailable { resource: name(), behind: String::new(), message: down() };
    let forbidden = PageError::Refused { resource: name(), code: 403, message: String::new() };
    let refused = PageError::Refused { resource: name(), code: 405, message: String::new() };
    let unauthorized = PageError::Refused { resource: name(), code: 401, message: String::new() };
    let request = |code| MigrationError::Request(RequestError::Refused { code, message: down() });
    for (failure, stage, reason, forget) in [
        (MigrationError::Page(unreadable), Stage::Waiting, Reason::WaitingForServer, false),
        (
            MigrationError::Unfinished(Unfinished::Unavailable(down())),
            Stage::Waiting,
            Reason::WaitingForServer,
            false,
        ),
        (
            MigrationError::Unfinished(Unfinished::Unauthorized(down())),
            Stage::Waiting,
            Reason::Unauthorized,
            false,
        ),
        (MigrationError::Page(forbidden), Stage::Waiting, Reason::Forbidden, false),
        (MigrationError::Page(unauthorized), Stage::Waiting, Reason::Unauthorized, false),
        (request(401), Stage::Waiting, Reason::Unauthorized, false),
        (request(403), Stage::Waiting, Reason::Forbidden, false),
        (request(500), Stage::Waiting, Reason::WaitingForServer, false),
        (MigrationError::Page(refused), Stage::Failed, Reason::ListRefused, false),
        (
            MigrationError::Disagreement(Disagreement::ServersChanged),
            Stage::Waiting,
            Reason::WaitingForAgreement,
            true,
        ),
        (MigrationError::Restless(String::new()), Stage::Failed, Reason::Restless, false),
    ] {
        let text = failure.to_string();
        let verdict = judge(failure, &StorageVersionMigration::default());
        assert_eq!((verdict.stage, verdict.reason, verdict.forget), (stage, reason, forget), "{text}");
        assert!(verdict.message.starts_with(&text), "{verdict:?}");
        assert_eq!(verdict.requeue == Requeue::Never, stage == Stage::Failed, "{text}");
    }
}

#[test]
fn a_migration_whose_status_is_refused_is_requeued() {
    for (lost, after) in [
        (Lost::Refused("a webhook denied it".to_owned()), Requeue::After(RETRY_LATER)),
        (Lost::Gone, Requeue::Never),
        (Lost::Taken, Requeue::Never),
        (Lost::Stopped, Requeue::Never),
    ] {
        assert_eq!(requeue_after(&lost), after, "{lost}");
    }
}
