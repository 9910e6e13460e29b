//! What the trigger does about a resource: the requests in order, and the reason.

use restow_api::{PendingMigration, Reason, StorageStateStatus};

use super::observation::Wanted;

/// What is to be done; [`steps`](Self::steps) has the order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Migrations to delete.
    pub delete: Vec<String>,
    /// What the migration to create is for; its name is in the state.
    pub create: Option<Wanted>,
    /// The state to write.
    pub state: Option<StorageStateStatus>,
    /// Why, for logs and Events; none for a mere heartbeat.
    pub reason: Option<Reason>,
}

/// One request of a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Writes the state.
    Write(Box<StorageStateStatus>),
    /// Deletes the migration of this name.
    Delete(String),
    /// Creates a migration.
    Create(PendingMigration, Wanted),
}

impl Decision {
    /// The requests that carry it out, given the state as it was seen.
    ///
    /// A crash after any of them loses nothing. The state names a new migration before those it replaces are deleted, and
    /// no longer names it once it exists; the next observation continues from there. If no migration can be created yet,
    /// the state is written first and says that nothing is known, so that the next agreement counts as a change. If the
    /// migration exists already, the state is written last, so that the next observation deletes the rest.
    pub fn steps(&self, known: Option<&StorageStateStatus>) -> Vec<Step> {
        let deletes = self.delete.iter().cloned().map(Step::Delete);
        let Some(state) = &self.state else { return deletes.collect() };
        let (Some(wanted), Some(pending)) = (&self.create, &state.pending_migration) else {
            let write = [Step::Write(Box::new(state.clone()))];
            return match self.reason {
                Some(_) => write.into_iter().chain(deletes).collect(),
                None => deletes.chain(write).collect(),
            };
        };
        let recorded = (known != Some(state)).then(|| Step::Write(Box::new(state.clone())));
        let made = StorageStateStatus { pending_migration: None, ..state.clone() };
        let create = Step::Create(pending.clone(), wanted.clone());
        recorded.into_iter().chain(deletes).chain([create, Step::Write(Box::new(made))]).collect()
    }

    /// Whether it only renews the heartbeat of the state as it was observed.
    pub fn is_heartbeat(&self, known: Option<&StorageStateStatus>) -> bool {
        let same = |(new, known): (&StorageStateStatus, &StorageStateStatus)| {
            let last_heartbeat_time = known.last_heartbeat_time.clone();
            StorageStateStatus { last_heartbeat_time, ..new.clone() } == *known
        };
        self.delete.is_empty() && self.create.is_none() && self.state.as_ref().zip(known).is_some_and(same)
    }
}

/// Explains in a sentence why the trigger acts.
pub fn explain(reason: Reason) -> &'static str {
    match reason {
        Reason::NewResource => "its storage is not known yet",
        Reason::StaleHeartbeat => "its storage version was not watched for too long",
        Reason::ForeignState => {
            "its state was written by another controller, which does not verify migrations"
        }
        Reason::StorageVersionChanged => "its storage version has changed",
        Reason::StorageVersionChangedTwice => "its storage version changed and changed back",
        Reason::VersionRetired => "a version is no longer served, and managedFields may refer to it",
        Reason::EncryptionChanged => "the encryption configuration has changed",
        Reason::EncryptionChangedTwice => "an API server used another encryption configuration for a while",
        Reason::EncryptionUnwatched => "its encryption configuration was not watched until now",
        Reason::EncryptionUnseen => {
            "its encryption configuration cannot be seen, so a key rotation goes unnoticed"
        }
        Reason::Disagreement => "the API servers do not agree on its storage",
        Reason::Migrated => "a migration was verified",
        Reason::RetryPlanned => "its migration failed for a reason that may go away",
        Reason::Retried => "its migration failed for a reason that may have gone away",
        _ => reason.as_str(),
    }
}
