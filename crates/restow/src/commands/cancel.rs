//! `restow cancel`: deletes migrations, and prints what they had done.

use clap::Args as ClapArgs;
use jiff::Timestamp;
use kube::ResourceExt as _;
use restow_api::{StorageState, StorageVersionMigration};
use restow_core::controller::condition::Stage;
use restow_migrate::client::Server;

use crate::args::Connection;
use crate::commands::steer::{Steer, out_of_time};
use crate::connect::connect;
use crate::error::CliError;
use crate::objects::{self, WriteMode, delete, find};
use crate::output::say;
use crate::program::program;
use crate::render::migration::MigrationSummary;
use crate::render::storage_state::StorageSummary;
use crate::signals::in_time;
use crate::watch;

/// Delete migrations; objects they have rewritten stay rewritten
#[derive(ClapArgs)]
#[command(
    after_help = "The controller stops within a page. The storage state of the resource still lists the versions \
    that objects may be stored in, until a migration of the resource succeeds. restow init creates another migration.
To stop one only for a while, use restow suspend.

Examples:
  restow cancel widgets.example.com-x7k2p
  restow cancel secrets-4jq9d --wait --timeout 1m      return once it is gone"
)]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) steer: Steer,
}

pub(crate) async fn run(connection: &Connection, flags: &Cancel) -> Result<u8, CliError> {
    let cluster = connect(connection).await?;
    let server = cluster.server();
    let found = find(server, &flags.steer.names).await?;
    // Only to print what is left to do; without permission to read them, it is not printed.
    let states: Vec<StorageState> = objects::list(server).await.unwrap_or_default();
    for migration in &found {
        delete(server, migration, WriteMode::unless(flags.steer.dry_run)).await?;
        let standing = MigrationSummary::of(migration, restow_clock::now());
        flags.steer.say(&standing.name, &cancelled(&standing));
        let state = states.iter().find(|state| state.name_any() == standing.resource);
        if let Some(note) = left_to_do(&standing, state, restow_clock::now()) {
            say!("{note}");
        }
    }
    if !flags.steer.wait {
        return Ok(0);
    }
    let all = async {
        for migration in &found {
            until_gone(server, migration).await?;
        }
        Ok(0)
    };
    in_time(flags.steer.timeout, all).await.unwrap_or_else(|| Ok(out_of_time()))
}

async fn until_gone(server: &Server, migration: &StorageVersionMigration) -> Result<(), CliError> {
    let is_gone = |now: Option<&StorageVersionMigration>| {
        now.is_none_or(|now| now.uid() != migration.uid()).then_some(())
    };
    watch::until(server, &migration.name_any(), is_gone).await
}

/// Describes the cancelled migration.
fn cancelled(standing: &MigrationSummary) -> String {
    match standing.phase {
        Stage::Succeeded => format!("deleted; it had succeeded: {}", standing.account()),
        Stage::Failed => format!("deleted; it had failed: {}", standing.account()),
        Stage::Running | Stage::Waiting | Stage::Suspended => format!("cancelled: {}", standing.account()),
    }
}

/// What is left to do for a resource whose migration had not succeeded.
fn left_to_do(standing: &MigrationSummary, state: Option<&StorageState>, now: Timestamp) -> Option<String> {
    let storage = StorageSummary::of(state?, now);
    if standing.phase == Stage::Succeeded || storage.settled || storage.persisted.is_empty() {
        return None;
    }
    Some(format!(
        "storage state {0} still lists {1}; to create another migration, run: {2} init {0}",
        storage.resource,
        storage.persisted.join(", "),
        program()
    ))
}

#[cfg(test)]
mod tests {
    use restow_api::MigrationProgress;
    use restow_core::controller::condition;

    use restow_api::Reason;

    use super::*;

    #[test]
    fn it_says_what_was_done_and_what_is_left() {
        let now = Timestamp::UNIX_EPOCH;
        let mut state = StorageState::default();
        state.metadata.name = Some("secrets".to_owned());
        let status = state.status.get_or_insert_default();
        status.persisted_storage_version_hashes = vec!["a".to_owned(), "b".to_owned()];
        status.current_storage_version_hash = Some("b".to_owned());
        for (stage, said, noted) in [
            (Stage::Running, "cancelled: 42%, 42/100: 42 rewritten, 0 already current", true),
            (Stage::Failed, "deleted; it had failed: 42%, 42/100: 42 rewritten, 0 already current", true),
            (
                Stage::Succeeded,
                "deleted; it had succeeded: 42%, 42/100: 42 rewritten, 0 already current",
                false,
            ),
        ] {
            let mut migration = StorageVersionMigration::default();
            migration.spec.resource.resource = "secrets".to_owned();
            let status = migration.status.get_or_insert_default();
            condition::set(status, stage, Reason::Started, "", now);
            status.progress = Some(MigrationProgress {
                rewritten: 42,
                remaining: Some(58),
                percent: Some("42%".to_owned()),
                ..MigrationProgress::default()
            });
            let standing = MigrationSummary::of(&migration, now);
            assert_eq!(cancelled(&standing), said);
            let note = left_to_do(&standing, Some(&state), now);
            assert_eq!(note.is_some(), noted, "{note:?}");
            assert!(note.is_none_or(|note| note.contains(
                "secrets still lists a, b; to create another migration, run: \
                restow init secrets"
            )));
            assert_eq!(left_to_do(&standing, None, now), None);
        }
    }
}
