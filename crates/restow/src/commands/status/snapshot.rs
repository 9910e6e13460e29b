//! The output of `restow status` at one moment.

use jiff::Timestamp;
use kube::ResourceExt as _;
use restow_api::{Conversion, GroupVersionResource, StorageState, StorageVersionMigration};
use serde::Serialize;

use crate::args::Output;
use crate::error::CliError;
use crate::objects::{self, bare, typed_name};
use crate::render::conversion::{self, ConversionSummary};
use crate::render::migration::{self, MigrationSummary};
use crate::render::storage_state::{self, StorageSummary};
use crate::render::table::{Row, listing};
use crate::render::text::{json, yaml};

/// The migrations, StorageStates and Conversions to show.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshot {
    migrations: Vec<MigrationSummary>,
    storage_states: Vec<StorageSummary>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conversions: Vec<ConversionSummary>,
}

impl Snapshot {
    /// Those with these names, in the order of display.
    pub(crate) fn new<'a>(
        names: &[String],
        migrations: impl Iterator<Item = &'a StorageVersionMigration>,
        states: impl Iterator<Item = &'a StorageState>,
        now: Timestamp,
    ) -> Self {
        let migrations = migrations.filter(|migration| matches_migration(names, migration));
        let states = states.filter(|state| matches_state(names, state));
        let mut snapshot = Self {
            migrations: migrations.map(|migration| MigrationSummary::of(migration, now)).collect(),
            storage_states: states.map(|state| StorageSummary::of(state, now)).collect(),
            conversions: Vec::new(),
        };
        snapshot.migrations.sort_by(|one, other| one.order().cmp(&other.order()));
        snapshot.storage_states.sort_by(|one, other| one.order().cmp(&other.order()));
        snapshot
    }

    /// And the Conversions with these names.
    pub(crate) fn and<'a>(
        mut self,
        names: &[String],
        conversions: impl Iterator<Item = &'a Conversion>,
        now: Timestamp,
    ) -> Self {
        let conversions = conversions.map(|object| ConversionSummary::of(object, now));
        self.conversions = conversions.filter(|summary| matches_conversion(names, summary)).collect();
        self.conversions.sort_by(|one, other| one.order().cmp(&other.order()));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.migrations.is_empty() && self.storage_states.is_empty() && self.conversions.is_empty()
    }

    /// The text in an output format.
    pub(crate) fn text(&self, form: Output, width: Option<usize>) -> String {
        match form {
            Output::Json => json(self),
            Output::Yaml => yaml(self),
            Output::Name => self.names(),
            Output::Table => self.tables(false, width),
            Output::Wide => self.tables(true, width),
        }
    }

    fn names(&self) -> String {
        let migrations = self.migrations.iter().map(|one| typed_name::<StorageVersionMigration>(&one.name));
        let states = self.storage_states.iter().map(|one| typed_name::<StorageState>(&one.resource));
        let conversions = self.conversions.iter().map(|one| typed_name::<Conversion>(&one.name));
        migrations.chain(states).chain(conversions).map(|name| name + "\n").collect()
    }

    fn tables(&self, wide: bool, width: Option<usize>) -> String {
        let mut text = String::new();
        if !self.migrations.is_empty() {
            let rows: Vec<Row> = self.migrations.iter().map(|standing| standing.row(wide)).collect();
            let header: &[&str] = if wide { &migration::WIDE_HEADER } else { &migration::HEADER };
            text.push_str(&listing(header, &rows, width));
            text.push_str(&self.untouched());
        }
        if !self.storage_states.is_empty() {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            let rows: Vec<Row> = self.storage_states.iter().map(StorageSummary::row).collect();
            text.push_str(&listing(&storage_state::HEADER, &rows, width));
        }
        if !self.conversions.is_empty() {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            let rows: Vec<Row> = self.conversions.iter().map(ConversionSummary::row).collect();
            text.push_str(&listing(&conversion::HEADER, &rows, width));
        }
        text
    }

    /// One line about all migrations that no controller has processed yet.
    fn untouched(&self) -> String {
        match self.migrations.iter().filter(|standing| standing.is_untouched()).count() {
            0 => String::new(),
            count => format!("{count} of {} not started by a controller yet\n", self.migrations.len()),
        }
    }
}

/// Whether one of the names is that of a migration or of its resource.
pub(crate) fn matches_migration(names: &[String], migration: &StorageVersionMigration) -> bool {
    let GroupVersionResource { resource, .. } = &migration.spec.resource;
    let name = |typed: &str| {
        [&migration.name_any(), resource, &migration.spec.resource.name()].iter().any(|name| *name == typed)
    };
    names.is_empty() || names.iter().any(|typed| !typed.starts_with("storagestate") && name(bare(typed)))
}

/// Whether one of the names is that of a StorageState.
pub(crate) fn matches_state(names: &[String], state: &StorageState) -> bool {
    let name = |typed: &str| state.name_any() == typed || state.spec.resource.resource == typed;
    let other = |typed: &str| typed.starts_with("storageversionmigration") && typed.contains('/');
    names.is_empty() || names.iter().any(|typed| !other(typed) && name(bare(typed)))
}

/// Whether one of the names is that of a Conversion, of its kind or of its resource.
pub(crate) fn matches_conversion(names: &[String], summary: &ConversionSummary) -> bool {
    let other = |typed: &str| typed.starts_with("storage") && typed.contains('/');
    names.is_empty() || names.iter().any(|typed| !other(typed) && summary.is_named(bare(typed)))
}

/// Fails unless each name exists.
pub(crate) fn known(
    names: &[String],
    migrations: &[StorageVersionMigration],
    states: &[StorageState],
    conversions: &[Conversion],
) -> Result<(), CliError> {
    let conversions: Vec<_> =
        conversions.iter().map(|object| ConversionSummary::of(object, Timestamp::UNIX_EPOCH)).collect();
    for typed in names {
        let one = std::slice::from_ref(typed);
        if conversions.iter().any(|summary| matches_conversion(one, summary)) {
            continue;
        }
        if migrations.iter().any(|migration| matches_migration(one, migration))
            || states.iter().any(|state| matches_state(one, state))
        {
            continue;
        }
        let mut names: Vec<String> = migrations.iter().map(kube::ResourceExt::name_any).collect();
        names.extend(migrations.iter().map(|migration| migration.spec.resource.name()));
        names.extend(states.iter().map(kube::ResourceExt::name_any));
        names.extend(conversions.iter().map(|summary| summary.name.clone()));
        names.sort();
        names.dedup();
        let names = names.into_iter().map(|name| (name, Vec::new()));
        return Err(objects::name_not_found(typed, "migration, storage state or Conversion", names));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects() -> (Vec<StorageVersionMigration>, Vec<StorageState>) {
        let migration = |name: &str, group: &str, resource: &str| {
            serde_json::from_value(json!({
                "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
                "metadata": {"name": name},
                "spec": {"resource": {"group": group, "version": "v1", "resource": resource}},
            }))
            .unwrap()
        };
        let state = |name: &str, group: &str, resource: &str| {
            serde_json::from_value(json!({
                "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageState", "metadata": {"name": name},
                "spec": {"resource": {"group": group, "resource": resource}},
            }))
            .unwrap()
        };
        (
            vec![
                migration("widgets.example.com-b", "example.com", "widgets"),
                migration("widgets.example.com-a", "example.com", "widgets"),
                migration("mine", "", "secrets"),
            ],
            vec![state("secrets", "", "secrets"), state("widgets.example.com", "example.com", "widgets")],
        )
    }

    #[test]
    fn names_choose_migrations_and_resources() {
        let (migrations, states) = objects();
        for (typed, expected) in [
            ("", "mine widgets.example.com-a widgets.example.com-b secrets widgets.example.com"),
            ("mine", "mine"),
            ("secrets", "mine secrets"),
            ("widgets", "widgets.example.com-a widgets.example.com-b widgets.example.com"),
            (
                "widgets.example.com widgets.example.com-a",
                "widgets.example.com-a widgets.example.com-b widgets.example.com",
            ),
            ("storagestate.migration.k8s.io/secrets", "secrets"),
            ("storageversionmigration.migration.k8s.io/mine", "mine"),
            ("svm/mine", "mine"),
        ] {
            let names: Vec<String> = typed.split_whitespace().map(str::to_owned).collect();
            let snapshot = Snapshot::new(&names, migrations.iter(), states.iter(), Timestamp::UNIX_EPOCH);
            let shown: Vec<String> = snapshot.names().lines().map(|name| bare(name).to_owned()).collect();
            assert_eq!(shown.join(" "), expected, "{typed}");
            assert!(known(&names, &migrations, &states, &[]).is_ok(), "{typed}");
        }
        assert!(known(&["widgts".to_owned()], &migrations, &states, &[]).is_err());
    }

    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Fixture {
        migrations: Vec<StorageVersionMigration>,
        storage_states: Vec<StorageState>,
        conversions: Vec<Conversion>,
    }

    #[test]
    fn every_form_of_the_status_is_as_reviewed() {
        let fixture: Fixture = serde_saphyr::from_str(include_str!("../../../fixtures/status.yaml")).unwrap();
        let now = "2026-11-15T12:10:00Z".parse().unwrap();
        let snapshot = Snapshot::new(&[], fixture.migrations.iter(), fixture.storage_states.iter(), now).and(
            &[],
            fixture.conversions.iter(),
            now,
        );
        for (name, form, width) in [
            ("table", Output::Table, None),
            ("table-60-columns", Output::Table, Some(60)),
            ("wide", Output::Wide, None),
            ("json", Output::Json, None),
            ("yaml", Output::Yaml, None),
            ("name", Output::Name, None),
        ] {
            crate::snapshots::check(&format!("status/{name}"), &snapshot.text(form, width));
        }
        let lines = snapshot.migrations.iter().map(MigrationSummary::line);
        let lines = lines.chain(snapshot.storage_states.iter().map(StorageSummary::line));
        let lines = lines.chain(snapshot.conversions.iter().map(ConversionSummary::line));
        crate::snapshots::check("status/lines", &lines.map(|line| line + "\n").collect::<String>());
    }
}
