//! Which objects restow created by itself: the labels that it sets, and how it recognizes them.

use std::collections::BTreeMap;

use restow_api::{ADOPTED, CONVERSION, CREATED_BY, MANAGED_BY, MANAGER, StorageVersionMigration, TRIGGER};

/// The labels of every object that restow creates by itself.
pub(crate) fn managed() -> BTreeMap<String, String> {
    BTreeMap::from([(MANAGED_BY.to_owned(), MANAGER.to_owned())])
}

/// The labels of a migration that the trigger creates.
pub(crate) fn triggered() -> BTreeMap<String, String> {
    let mut labels = managed();
    labels.insert(CREATED_BY.to_owned(), TRIGGER.to_owned());
    labels
}

/// Whether the trigger created a migration.
pub(crate) fn is_triggered(migration: &StorageVersionMigration) -> bool {
    let Some(labels) = &migration.metadata.labels else { return false };
    let is = |label: &str, value: &str| labels.get(label).is_some_and(|set| set == value);
    // The trigger of a former version did not set the label. It named migrations itself; `restow init` lets the API
    // server generate their names.
    let is_former = || !labels.contains_key(CREATED_BY) && migration.metadata.generate_name.is_none();
    migration.spec.storage_version_hash.is_some()
        && is(MANAGED_BY, MANAGER)
        && !labels.contains_key(ADOPTED)
        && (is(CREATED_BY, TRIGGER) || is_former())
}

/// The name and uid of the Conversion that a migration was created for.
pub(crate) fn conversion_of(migration: &StorageVersionMigration) -> Option<(String, String)> {
    let labels = migration.metadata.labels.as_ref()?;
    if labels.get(CREATED_BY).map(String::as_str) != Some(CONVERSION) {
        return None;
    }
    let owners = migration.metadata.owner_references.as_ref()?;
    let owner = owners.iter().find(|owner| owner.kind == "Conversion")?;
    Some((owner.name.clone(), owner.uid.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_migration_that_the_trigger_created_is_its_own() {
        let own = [(MANAGED_BY, MANAGER), (CREATED_BY, TRIGGER)];
        let managed = [(MANAGED_BY, MANAGER)];
        let adopted = [(MANAGED_BY, MANAGER), (ADOPTED, "x")];
        for (what, labels, hash, generate_name, expected) in [
            ("the trigger", &own[..], Some("x"), None, true),
            ("the trigger of a former version", &managed, Some("x"), None, true),
            ("restow init", &managed, Some("x"), Some("widgets.example.com-"), false),
            ("restow controller --adopt in-tree", &adopted, Some("x"), None, false),
            ("a user", &[], None, None, false),
            ("a user who names the hash", &[], Some("x"), None, false),
            ("a user who copied just the label", &own[1..], Some("x"), None, false),
        ] {
            let mut migration = StorageVersionMigration::default();
            let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
            migration.metadata.labels = Some(labels.collect());
            migration.metadata.generate_name = generate_name.map(str::to_owned);
            migration.spec.storage_version_hash = hash.map(str::to_owned);
            assert_eq!(is_triggered(&migration), expected, "made by {what}");
        }
    }
}
