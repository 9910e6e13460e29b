//! Which objects restow created by itself: the labels that it sets, and how it recognizes them.

use std::collections::BTreeMap;

use restow_api::{ADOPTED, MANAGED_BY, MANAGER, StorageVersionMigration};

/// The labels of every object that restow creates by itself.
pub(crate) fn managed() -> BTreeMap<String, String> {
    BTreeMap::from([(MANAGED_BY.to_owned(), MANAGER.to_owned())])
}

/// Whether the trigger created a migration.
pub(crate) fn is_triggered(migration: &StorageVersionMigration) -> bool {
    let labels = migration.metadata.labels.as_ref();
    let is_ours = |labels: &BTreeMap<String, String>| {
        labels.get(MANAGED_BY).is_some_and(|manager| manager == MANAGER) && !labels.contains_key(ADOPTED)
    };
    migration.spec.storage_version_hash.is_some() && labels.is_some_and(is_ours)
}
