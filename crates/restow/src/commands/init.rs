//! `restow init`: one migration for each resource that may need one.

pub(crate) mod owner;

use clap::{Args as ClapArgs, ValueEnum};
use kube::ResourceExt as _;
use restow_api::{MANAGED_BY, MANAGER, StorageVersionMigration};
use restow_core::controller::condition::Stage;
use restow_core::resource::inventory::{Obstacle, Origin, Recommendation, Resource};
use restow_migrate::client::Server;
use restow_migrate::cluster::{Cluster, Inventory};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{Connection, Scope};
use crate::assessment::{Assessed, assess};
use crate::connect::{connect, unanswered};
use crate::error::CliError;
use crate::objects::{self, WriteMode, create, typed_name};
use crate::output;
use crate::output::say;
use crate::predecessor;
use crate::render::table::{Row, listing, width};
use crate::render::text;
use crate::resources;

use owner::Owner;

/// Create a migration for each resource that may need one, for a controller to run
#[derive(ClapArgs)]
#[command(after_help = "Resources that share their storage get one migration, and events get one only with \
    --include-events. A resource with an unfinished migration gets no second one. Migrations are named \
    <resource>.<group>- and five random characters, as in kube-storage-version-migrator.

The ClusterRole restow owns the migrations, if restow install has created it: deleting that role deletes them \
too. restow uninstall keeps them, unless --crds is given. The controller's Deployment cannot be the owner: it is \
namespaced and migrations are not, so Kubernetes could not resolve it and would never delete them.

Examples:
  restow init --dry-run                  what would be created, what not, and why
  restow init                            for all resources that need, or may need, one
  restow init secrets                    for one resource, as after a key rotation
  restow init --all --owner none         for all resources, without an owner")]
pub(crate) struct Init {
    /// Resources, such as secrets or widgets.example.com [default: all whose objects are, or may be, stored in
    /// another version]
    #[arg(value_name = "RESOURCE", value_delimiter = ',')]
    resources: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    /// Create one for every resource that can be migrated, needed or not
    #[arg(long, conflicts_with = "resources")]
    all: bool,
    /// Create one for events too; rewriting them restarts their time to live
    #[arg(long)]
    include_events: bool,
    /// The cluster-scoped object that owns the migrations, or none [default: clusterrole/restow if it exists]
    #[arg(long, value_name = "KIND/NAME")]
    owner: Option<Owner>,
    /// Send every write as a server-side dry run: nothing is stored
    #[arg(long)]
    dry_run: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = InitOutput::Table)]
    output: InitOutput,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InitOutput {
    Table,
    Json,
    Yaml,
    Name,
}

/// Which migrations were created, and which resources were skipped or failed.
#[derive(Default, Serialize)]
struct InitReport {
    created: Vec<StorageVersionMigration>,
    skipped: Vec<Skipped>,
    failed: Vec<Failed>,
}

/// A resource that got no migration.
#[derive(Debug, PartialEq, Serialize)]
struct Skipped {
    resource: String,
    reason: String,
    /// Whether it needs a migration, or may need one, and cannot get one.
    #[serde(skip)]
    left_out: bool,
}

/// A resource whose migration was refused.
#[derive(Serialize)]
struct Failed {
    resource: String,
    message: String,
}

pub(crate) async fn run(connection: &Connection, flags: &Init) -> Result<u8, CliError> {
    let cluster = connect(connection).await?;
    let existing: Vec<StorageVersionMigration> = objects::list(cluster.server()).await?;
    predecessor::refuse(cluster.server()).await?;
    let inventory = match cluster.inventory(flags.include_events).await {
        Ok(inventory) => inventory,
        Err(error) => return Err(unanswered(&cluster, error).await),
    };
    let owner = owner::reference(&cluster, &inventory, flags.owner.as_ref()).await?;
    let (wanted, mut skipped) = choose(&cluster, &inventory, flags).await?;
    let (busy, free): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|resource| unfinished(resource, &existing).is_some());
    skipped.extend(busy.into_iter().filter_map(|resource| {
        let migration = unfinished(resource, &existing)?;
        let stage = Stage::of(migration.status.as_ref()).name();
        let reason = format!("{} is {stage}", migration.name_any());
        Some(Skipped { resource: resource.name.to_string(), reason, left_out: false })
    }));
    let made = make(cluster.server(), &free, owner.as_ref(), flags, skipped).await?;
    show(&made, flags);
    // Every resource was requested, and those left out may be stored in any version.
    let unanswered = flags.resources.is_empty() && resources::warn_left_out(&inventory);
    let left_out = made.skipped.iter().filter(|skipped| skipped.left_out).count();
    if left_out > 0 {
        let resources = text::counted(left_out as u64, "resource");
        say!("warning: {resources} may need a migration and got none; the reasons are above");
    }
    Ok(u8::from(unanswered || left_out > 0 || !made.failed.is_empty()))
}

/// The resources to migrate, and those that are stored but not chosen.
async fn choose<'a>(
    cluster: &Cluster,
    inventory: &'a Inventory,
    flags: &Init,
) -> Result<(Vec<&'a Resource>, Vec<Skipped>), CliError> {
    if !flags.resources.is_empty() {
        let chosen = resources::named(inventory, &flags.resources)?;
        resources::migratable(&chosen)?;
        return Ok((chosen, Vec::new()));
    }
    let mut skipped = Vec::new();
    let mut chosen = Vec::new();
    for Assessed { resource, needed, .. } in assess(cluster, &inventory.resources, None).await {
        let left_out = resource.obstacle.is_some() && !matches!(needed, Recommendation::No(_));
        match why_not(resource, needed, flags.all) {
            None => chosen.push(resource),
            Some(reason) if is_stored(resource) => {
                skipped.push(Skipped { resource: resource.name.to_string(), reason, left_out });
            }
            Some(_) => {}
        }
    }
    Ok((chosen, skipped))
}

/// Why a resource that was not named gets no migration.
fn why_not(resource: &Resource, needed: Recommendation, all: bool) -> Option<String> {
    match (&resource.obstacle, needed) {
        (Some(obstacle), _) => Some(obstacle.explain()),
        (None, Recommendation::No(reason)) if !all => {
            Some(format!("{reason}; use --all to migrate it anyway"))
        }
        (None, _) => None,
    }
}

/// Whether the resource is stored at all, even if it cannot be migrated.
fn is_stored(resource: &Resource) -> bool {
    match &resource.obstacle {
        Some(Obstacle::Verbs(_) | Obstacle::NoHash(Origin::BuiltIn | Origin::Custom)) => false,
        Some(_) | None => true,
    }
}

/// An unfinished migration of this resource, under any of its names.
fn unfinished<'a>(
    resource: &Resource,
    existing: &'a [StorageVersionMigration],
) -> Option<&'a StorageVersionMigration> {
    let names: Vec<String> =
        std::iter::once(&resource.name).chain(&resource.shared_by).map(ToString::to_string).collect();
    existing
        .iter()
        .find(|migration| !migration.is_finished() && names.contains(&migration.spec.resource.name()))
}

/// The migration of a resource.
fn migration(resource: &Resource, owner: Option<&Value>) -> Value {
    let version = resource.endpoint().map(|version| version.version.as_str());
    json!({
        "apiVersion": "migration.k8s.io/v1alpha1",
        "kind": "StorageVersionMigration",
        "metadata": {
            "generateName": format!("{}-", resource.name),
            "labels": {MANAGED_BY: MANAGER},
            "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
        },
        "spec": {
            "resource": {
                "group": resource.name.group, "version": version.unwrap_or_default(),
                "resource": resource.name.resource,
            },
            "storageVersionHash": resource.hash,
        },
    })
}

async fn make(
    server: &Server,
    resources: &[&Resource],
    owner: Option<&Value>,
    flags: &Init,
    skipped: Vec<Skipped>,
) -> Result<InitReport, CliError> {
    let mut made = InitReport { skipped, ..InitReport::default() };
    for resource in resources {
        let keep = WriteMode::unless(flags.dry_run);
        match create::<StorageVersionMigration>(server, &migration(resource, owner), keep).await {
            Ok(mut created) => {
                created.metadata.managed_fields = None;
                made.created.push(created);
            }
            Err(refused) if refused.for_all => {
                // The migrations created before exist.
                show(&made, flags);
                return Err(refused.failure);
            }
            Err(refused) => made
                .failed
                .push(Failed { resource: resource.name.to_string(), message: refused.failure.to_string() }),
        }
    }
    made.skipped.sort_by(|one, other| one.resource.cmp(&other.resource));
    Ok(made)
}

fn show(made: &InitReport, flags: &Init) {
    output::print(&made.text(flags.output, flags.dry_run, width()));
    say!("{}", made.total(flags.dry_run));
}

impl InitReport {
    fn text(&self, form: InitOutput, dry_run: bool, width: Option<usize>) -> String {
        match form {
            InitOutput::Json => text::json(self),
            InitOutput::Yaml => text::yaml(self),
            InitOutput::Name => {
                let name =
                    |one: &StorageVersionMigration| typed_name::<StorageVersionMigration>(&one.name_any());
                self.created.iter().map(|created| name(created) + "\n").collect()
            }
            InitOutput::Table => listing(&["NAME", "VERSION", "RESULT"], &rows(self, dry_run), width),
        }
    }

    /// How many were created, skipped and refused.
    fn total(&self, dry_run: bool) -> String {
        let created = if dry_run { "would be created" } else { "created" };
        let (made, skipped, failed) = (self.created.len(), self.skipped.len(), self.failed.len());
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        format!("{made} {created}, {skipped} skipped{failed}")
    }
}

fn rows(made: &InitReport, dry_run: bool) -> Vec<Row> {
    let created = made.created.iter().map(|created| {
        // Without a dry run, the server generates another name.
        let (name, result) = match &created.metadata.generate_name {
            Some(start) if dry_run => (format!("{start}…"), "would be created"),
            _ => (created.name_any(), "created"),
        };
        let cells = vec![name, created.spec.resource.version.clone(), result.to_owned()];
        Row { cells, beneath: Vec::new() }
    });
    let other = |resource: &str, result: &str, why: &str| Row {
        cells: vec![resource.to_owned(), String::new(), result.to_owned()],
        beneath: vec![why.to_owned()],
    };
    let skipped = made.skipped.iter().map(|one| other(&one.resource, "skipped", &one.reason));
    let failed = made.failed.iter().map(|one| other(&one.resource, "failed", &one.message));
    created.chain(skipped).chain(failed).collect()
}

#[cfg(test)]
mod tests {
    use restow_core::resource::hash::storage_version_hash;
    use restow_core::resource::inventory::Evidence;
    use restow_core::resource::inventory::{Crd, Document, Served, inventory};
    use restow_core::resource::name::{GroupResource, GroupVersion};

    use restow_api::Reason;

    use super::*;

    fn document(version: &str, resources: &[(&str, &str, &str)]) -> Document {
        let each = |(name, kind, stored): &(&str, &str, &str)| Served {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            verbs: vec!["list".to_owned(), "patch".to_owned()],
            hash: (!stored.is_empty()).then(|| storage_version_hash(&GroupVersion::parse(stored), kind)),
            ..Served::default()
        };
        Document {
            version: GroupVersion::parse(version),
            aggregated: false,
            resources: Ok(resources.iter().map(each).collect()),
        }
    }

    fn crd(name: &str, stored: &[&str]) -> Crd {
        Crd {
            webhook: false,
            converting: false,
            name: GroupResource::parse(name),
            resource_version: String::new(),
            uid: String::new(),
            generation: 1,
            storage_version: "v2".to_owned(),
            versions: vec![("v1".to_owned(), true), ("v2".to_owned(), true)],
            stored_versions: stored.iter().map(|&version| version.to_owned()).collect(),
            changed: None,
        }
    }

    fn resources() -> Vec<Resource> {
        let custom = [("widgets", "Widget", "example.com/v2"), ("gadgets", "Gadget", "example.com/v2")];
        let documents = [
            document(
                "v1",
                &[("secrets", "Secret", "v1"), ("events", "Event", "v1"), ("scales", "Scale", "")],
            ),
            document("events.k8s.io/v1", &[("events", "Event", "v1")]),
            document("example.com/v1", &custom),
            document("example.com/v2", &custom),
        ];
        let crds = [crd("widgets.example.com", &["v1", "v2"]), crd("gadgets.example.com", &["v2"])];
        inventory(&documents, &crds, false)
    }

    fn one(resources: &[Resource], name: &str) -> Resource {
        resources.iter().find(|resource| resource.name.to_string() == name).cloned().unwrap()
    }

    #[test]
    fn resources_are_chosen_or_skipped_with_a_reason() {
        let resources = resources();
        for (name, all, why, stored) in [
            ("secrets", false, None, true),
            ("widgets.example.com", false, None, true),
            (
                "gadgets.example.com",
                false,
                Some("its CRD says that all is stored in v2; use --all to migrate it anyway"),
                true,
            ),
            ("gadgets.example.com", true, None, true),
            (
                "events",
                true,
                Some("a rewrite would extend the life of events; --include-events does it"),
                true,
            ),
            ("events.events.k8s.io", true, Some("stored as events, migrated there"), true),
            ("scales", true, Some("not stored"), false),
        ] {
            let resource = one(&resources, name);
            let needed = resource.recommend(None, Evidence::Nothing);
            assert_eq!(why_not(&resource, needed, all).as_deref(), why, "{name}");
            assert_eq!(is_stored(&resource), stored, "{name}");
        }
    }

    #[test]
    fn a_migration_is_for_the_current_hash() {
        let widgets = one(&resources(), "widgets.example.com");
        let owner = json!({"kind": "ClusterRole"});
        let made = migration(&widgets, Some(&owner));
        assert_eq!(made["metadata"]["generateName"], "widgets.example.com-");
        assert_eq!(made["metadata"]["ownerReferences"], json!([owner]));
        assert_eq!(
            made["spec"],
            json!({
                "resource": {"group": "example.com", "version": "v2", "resource": "widgets"},
                "storageVersionHash": widgets.hash,
            })
        );
    }

    #[test]
    fn a_resource_with_an_unfinished_migration_gets_no_second() {
        let resources = resources();
        let existing = |group: &str, resource: &str, ended: bool| {
            let mut migration = StorageVersionMigration::default();
            migration.spec.resource.group = group.to_owned();
            migration.spec.resource.resource = resource.to_owned();
            let stage = if ended { Stage::Failed } else { Stage::Running };
            let status = migration.status.get_or_insert_default();
            restow_core::controller::condition::set(
                status,
                stage,
                Reason::Started,
                "",
                jiff::Timestamp::UNIX_EPOCH,
            );
            migration
        };
        for (name, migration, is_busy) in [
            ("secrets", existing("", "secrets", false), true),
            ("secrets", existing("", "secrets", true), false),
            ("secrets", existing("example.com", "secrets", false), false),
            ("events", existing("events.k8s.io", "events", false), true),
        ] {
            let found = unfinished(&one(&resources, name), std::slice::from_ref(&migration)).is_some();
            assert_eq!(found, is_busy, "{name}");
        }
    }

    #[test]
    fn every_form_of_the_result_is_as_reviewed() {
        let created = |name: &str, generated: &str| {
            let mut migration = StorageVersionMigration::default();
            migration.metadata.name = Some(name.to_owned());
            migration.metadata.generate_name = Some(generated.to_owned());
            migration.spec.resource.version = "v1".to_owned();
            migration.spec.resource.resource = "secrets".to_owned();
            migration
        };
        let resources = resources();
        let events = one(&resources, "events");
        let made = InitReport {
            created: vec![created("secrets-x7k2p", "secrets-")],
            skipped: vec![Skipped {
                resource: "events".to_owned(),
                reason: why_not(&events, events.recommend(None, Evidence::Nothing), false).unwrap(),
                left_out: false,
            }],
            failed: vec![Failed { resource: "pods".to_owned(), message: "denied by policy".to_owned() }],
        };
        for (name, form, dry_run) in [
            ("table", InitOutput::Table, false),
            ("table-dry-run", InitOutput::Table, true),
            ("json", InitOutput::Json, false),
            ("name", InitOutput::Name, false),
        ] {
            let shown = made.text(form, dry_run, Some(100)) + &made.total(dry_run) + "\n";
            crate::snapshots::check(&format!("init/{name}"), &shown);
        }
    }
}
