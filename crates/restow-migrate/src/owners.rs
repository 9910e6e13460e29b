//! Who owns fields of a resource's objects through one version, by their managedFields.

use std::collections::BTreeMap;

use restow_core::resource::inventory::Resource;
use restow_core::resource::name::GroupVersion;
use restow_core::rewrite::managed_fields::Versions;
use restow_core::rewrite::pace::Preset;
use restow_lease::Stop;
use serde::Deserialize;

use crate::client::{Server, Throttle};
use crate::list::chunks::Chunks;
use crate::list::{PageError, Target, Waiting};

/// How many managers are told apart.
const MANAGERS: usize = 100;
/// Objects in a page.
const PAGE_SIZE: u32 = 500;

/// Who owns fields through one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldOwners {
    /// How many objects there are.
    pub objects: u64,
    /// How many of them have entries of the version.
    pub owned: u64,
    /// The managers of these entries and how many objects they own fields of. There may be more than are named here.
    pub managers: BTreeMap<String, u64>,
    /// Objects that cannot be read, so that it is not known who owns their fields.
    pub unreadable: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    manager: String,
    #[serde(default)]
    operation: String,
}

impl FieldOwners {
    fn add(&mut self, fields: &str, version: &GroupVersion) {
        // Entries that cannot be read may be of the version.
        let Ok(entries) = serde_json::from_str::<Vec<Entry>>(fields) else {
            self.owned += 1;
            return;
        };
        let mut own: Vec<String> = entries
            .into_iter()
            .filter(|entry| GroupVersion::parse(&entry.api_version) == *version)
            .map(|entry| format!("{} ({})", entry.manager, entry.operation))
            .collect();
        own.sort();
        own.dedup();
        self.owned += u64::from(!own.is_empty());
        for manager in own {
            if self.managers.len() < MANAGERS || self.managers.contains_key(&manager) {
                *self.managers.entry(manager).or_default() += 1;
            }
        }
    }
}

/// Lists all objects through another version, and counts who owns fields through this one; `None` if it was stopped.
///
/// # Errors
/// When the objects cannot be listed.
pub async fn field_owners(
    server: &Server,
    resource: &Resource,
    version: &GroupVersion,
    waiting: &(dyn Waiting + Sync),
    stop: &Stop,
) -> Result<Option<FieldOwners>, PageError> {
    let vanished = || PageError::Vanished(resource.name.clone());
    let mut target = Target::of(resource).ok_or_else(vanished)?;
    // Requests through the version would look like those of a client. A webhook that is down answers none through another one.
    let converts = resource.crd.as_ref().is_some_and(|crd| crd.webhook);
    if target.version == *version
        && !converts
        && let Some(other) = resource.served.iter().find(|served| *served != version)
    {
        target.version = other.clone();
    }
    target.versions = Versions::of(resource).without(version);
    let throttle = Throttle::new(Preset::Fast.bounds());
    let mut pages = Chunks::new(server, &target, PAGE_SIZE, None, waiting, &throttle);
    let mut owners = FieldOwners::default();
    loop {
        let Some(page) = stop.unless(pages.next()).await else { return Ok(None) };
        let page = page?;
        owners.objects += page.items.len() as u64;
        owners.unreadable += page.unreadable.len() as u64;
        for item in &page.items {
            if let Some(fields) = &item.stale_fields {
                owners.add(fields.get(), version);
            }
        }
        if page.last {
            return Ok(Some(owners));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_entries_of_the_version_count_and_each_manager_once_for_an_object() {
        let entry = |version: &str, manager: &str, operation: &str| json!({"apiVersion": version, "manager": manager, "operation": operation});
        let version = GroupVersion::parse("example.com/v1beta1");
        let mut owners = FieldOwners::default();
        let twice = entry("example.com/v1beta1", "team", "Update");
        for entries in [
            json!([twice, twice, entry("example.com/v1", "other", "Apply")]),
            json!([
                entry("example.com/v1beta1", "team", "Update"),
                entry("example.com/v1beta1", "cd", "Apply")
            ]),
            json!([entry("example.com/v1", "team", "Update")]),
            json!([]),
        ] {
            owners.add(&entries.to_string(), &version);
        }
        owners.add("{}", &version);
        let managers = BTreeMap::from([("team (Update)".to_owned(), 2), ("cd (Apply)".to_owned(), 1)]);
        assert_eq!((owners.owned, owners.managers), (3, managers));
    }
}
