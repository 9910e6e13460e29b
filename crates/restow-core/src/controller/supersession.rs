//! Whether a migration is for another version or key than the API servers use now.

use restow_api::StorageVersionMigrationSpec;

use crate::rewrite::progress::Progress;

/// Why a migration is superseded: its storage version or encryption configuration is no longer the current one.
pub fn superseded(spec: &StorageVersionMigrationSpec, progress: &Progress) -> Option<String> {
    let other = |wanted: &Option<String>, now: Option<&String>| {
        wanted.as_ref().filter(|wanted| now.is_some_and(|now| now != *wanted)).cloned()
    };
    if let Some(wanted) = other(&spec.storage_version_hash, Some(&progress.storage_version_hash)) {
        let now = &progress.storage_version_hash;
        return Some(format!(
            "the migration is for storage version {wanted}, but the API servers now use {now}"
        ));
    }
    let wanted = other(&spec.encryption_config_hash, progress.encryption.as_ref())?;
    let now = progress.encryption.clone().unwrap_or_default();
    Some(format!("the migration is for encryption configuration {wanted}, but the API servers now use {now}"))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::resource::name::GroupResource;

    #[test]
    fn a_migration_for_another_version_or_key_is_superseded() {
        for (hash, key, current_key, expected) in [
            (None, None, None, None),
            (Some("v2"), Some("k1"), Some("k1"), None),
            (Some("v1"), Some("k1"), Some("k1"), Some("storage version v1")),
            (Some("v2"), Some("k0"), Some("k1"), Some("encryption configuration k0")),
            // Nothing is known of the current key.
            (Some("v2"), Some("k0"), None, None),
            (None, None, Some("k1"), None),
        ] {
            let spec = StorageVersionMigrationSpec {
                storage_version_hash: hash.map(str::to_owned),
                encryption_config_hash: key.map(str::to_owned),
                ..StorageVersionMigrationSpec::default()
            };
            let name = GroupResource::new("", "secrets");
            let mut progress = Progress::new(name, "v2", "v2", Timestamp::UNIX_EPOCH);
            progress.encryption = current_key.map(str::to_owned);
            let found = superseded(&spec, &progress);
            let shown = found.as_deref().map(|text| expected.is_some_and(|part| text.contains(part)));
            assert_eq!(shown, expected.map(|_| true), "{hash:?} {key:?} {current_key:?}");
        }
    }
}
