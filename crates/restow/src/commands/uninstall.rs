//! `restow uninstall`: deletes what `restow install` created, and nothing else.

mod contents;
mod release;
mod webhook;

use std::time::Duration;

use clap::Args as ClapArgs;
use http::Method;
use restow_core::resource::name::GroupResource;
use restow_migrate::client::Server;
use restow_migrate::cluster::Cluster;
use serde_json::{Value, json};

use crate::args::{Connection, DEFAULT_NAMESPACE, duration};
use crate::commands::controller::ALL;
use crate::commands::install::apply::{installed_in, look, note, refused};
use crate::commands::install::flags::namespace;
use crate::commands::install::manifest::{Manifest, is_ours};
use crate::commands::install::manifests::{Setup, manifests};
use crate::commands::install::ready::{self, Deleted};
use crate::commands::install::rules::{InTree, Listing, NAME, WEBHOOK};
use crate::commands::install::workload::Workload;
use crate::connect::connect;
use crate::error::CliError;
use crate::objects::WriteMode;
use crate::output::say;
use crate::render::text::counted;

/// Delete what `restow install` created
///
/// The definitions of migrations, storage states and rules, and with them all such objects, stay unless --crds is given.
/// Definitions that another program made always stay. While CRDs call the webhook, nothing is deleted: their objects
/// could not be read without it.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  restow uninstall --dry-run            what would be deleted
  restow uninstall --wait               remove controllers and webhook; keep migrations and rules
  restow uninstall --keep-webhook       remove the controllers only
  restow uninstall --crds               delete these too: nothing is left")]
pub(crate) struct Uninstall {
    /// The namespace that restow is installed in [default: detected]
    #[arg(short, long, visible_alias = "namespace-name", value_name = "NAME", value_parser = namespace)]
    namespace: Option<String>,
    /// Delete the definitions too, and with them all migrations and storage states, also your own
    #[arg(long)]
    crds: bool,
    /// Leave the conversion webhook, its permissions and its certificates
    #[arg(long, conflicts_with = "crds")]
    keep_webhook: bool,
    /// Send every delete as a server-side dry run: nothing is deleted
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Wait until everything is gone
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, requires = "wait", value_name = "DURATION", value_parser = duration, default_value = "5m")]
    timeout: Duration,
}

/// The result for an object.
enum UninstallResult {
    /// It was deleted, or is being deleted.
    Deleted(Deleted),
    /// It is kept on purpose.
    Kept,
    /// It could not be deleted; this is reported at the end.
    Stuck(CliError),
}

pub(crate) async fn run(connection: &Connection, flags: &Uninstall) -> Result<u8, CliError> {
    let cluster = connect(connection).await?;
    let namespace = place(cluster.server(), flags).await?;
    if !flags.keep_webhook {
        webhook::refuse_while_called(cluster.server(), &namespace, flags.crds).await?;
    }
    let (mut deleted, mut stuck) = (Vec::new(), None);
    for manifest in everything(&namespace, flags.keep_webhook) {
        let Some(found) = look(cluster.server(), &manifest).await? else { continue };
        match remove(&cluster, &manifest, &found, flags).await? {
            UninstallResult::Deleted(object) => deleted.push(object),
            UninstallResult::Kept => {}
            UninstallResult::Stuck(why) => stuck = Some(why),
        }
    }
    if deleted.is_empty() && stuck.is_none() {
        say!("restow is not installed: there was nothing to delete");
    }
    if flags.wait {
        ready::gone(cluster.server(), &deleted, flags.timeout).await?;
    }
    stuck.map_or(Ok(0), Err)
}

/// Deletes one object, if it belongs to restow and nothing else needs it.
async fn remove(
    cluster: &Cluster,
    manifest: &Manifest,
    found: &Value,
    flags: &Uninstall,
) -> Result<UninstallResult, CliError> {
    let server = cluster.server();
    if !found["metadata"]["deletionTimestamp"].is_null() {
        say!("{} is already being deleted", manifest.title());
        return Ok(UninstallResult::Deleted(deleted(manifest, found)));
    }
    match manifest.kind() {
        // Another migrator defines the same APIs.
        "CustomResourceDefinition" if is_ours(found) => definition(server, manifest, found, flags).await,
        "Namespace" if is_ours(found) => match contents::others(cluster, manifest.name()).await {
            Ok(others) if others.is_empty() => delete(server, manifest, found, flags, "").await,
            Ok(others) => Ok(UninstallResult::Stuck(occupied(manifest.name(), &others))),
            Err(failure) => Ok(UninstallResult::Stuck(failure)),
        },
        // Pods created the Leases and the Secret, without all labels; name and namespace identify them.
        kind if is_ours(found) || kind == "Lease" || webhook::is_certificates(found) => {
            delete(server, manifest, found, flags, "").await
        }
        _ => {
            say!("{} kept: restow install did not create it", manifest.title());
            Ok(UninstallResult::Kept)
        }
    }
}

/// The namespace that restow is installed in: that of the ServiceAccount that its ClusterRole is bound to.
async fn place(server: &Server, flags: &Uninstall) -> Result<String, CliError> {
    let found = installed_in(server).await?;
    match (&flags.namespace, found) {
        (Some(named), Some(found)) if *named != found => {
            Err(CliError::usage(format!("restow is not installed in {named}"))
                .hint(format!("it is installed in {found}: use -n {found}, or omit -n")))
        }
        (Some(named), _) => Ok(named.clone()),
        (None, Some(found)) => Ok(found),
        (None, None) => Ok(DEFAULT_NAMESPACE.to_owned()),
    }
}

/// Everything that an install can have created, the last first, and what its pods created.
fn everything(namespace: &str, keep_webhook: bool) -> Vec<Manifest> {
    let setup = Setup {
        namespace: namespace.to_owned(),
        resources: Vec::new(),
        controllers: ALL.to_vec(),
        in_tree: InTree::Adopted,
        listing: Listing::default(),
        define_in_tree: true,
        encrypted: None,
        given: Vec::new(),
        workload: Some(Workload { image: String::new(), flags: Vec::new() }),
    };
    let mut all = manifests(&setup);
    // After the roles are gone, so that no running pod creates it again.
    all.insert(1, webhook::lease(NAME, namespace));
    if keep_webhook {
        // The webhook is in it.
        all.retain(|manifest| manifest.kind() != "Namespace");
    } else {
        webhook::add(&mut all, namespace);
    }
    // Last, because they identify the namespace if the command has to be run again.
    let identifies = |manifest: &Manifest| {
        manifest.kind() == "ClusterRoleBinding" && [NAME, WEBHOOK].contains(&manifest.name())
    };
    all.reverse();
    all.sort_by_key(identifies);
    all
}

/// Deletes a CRD if that was requested, and prints what is deleted with it.
async fn definition(
    server: &Server,
    manifest: &Manifest,
    found: &Value,
    flags: &Uninstall,
) -> Result<UninstallResult, CliError> {
    let objects = objects(server, found, &GroupResource::parse(manifest.name())).await;
    let objects = objects.map_or_else(|| "objects".to_owned(), |number| counted(number, "object"));
    if flags.crds {
        return delete(server, manifest, found, flags, &format!(" with its {objects}")).await;
    }
    say!("{} kept with its {objects}; use --crds to delete them", manifest.title());
    Ok(UninstallResult::Kept)
}

/// The number of objects of a CRD, if it is known.
async fn objects(server: &Server, definition: &Value, name: &GroupResource) -> Option<u64> {
    let versions = definition["spec"]["versions"].as_array()?;
    let version = versions.iter().find(|version| version["served"] == true)?["name"].as_str()?;
    let path = format!("/apis/{}/{version}/{}?limit=1", name.group, name.resource);
    let list: Value = server.get(&path).await.ok()?;
    let listed = u64::try_from(list["items"].as_array()?.len()).ok()?;
    Some(listed + list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0))
}

fn occupied(namespace: &str, others: &[String]) -> CliError {
    CliError::failed(format!("namespace/{namespace} was kept, because it contains {}", others.join(", ")))
        .hint(format!("to delete it with everything in it, run: kubectl delete namespace {namespace}"))
}

async fn delete(
    server: &Server,
    manifest: &Manifest,
    found: &Value,
    flags: &Uninstall,
    with: &str,
) -> Result<UninstallResult, CliError> {
    let object = deleted(manifest, found);
    if !flags.crds {
        let released = release::release(server, &object.uid, WriteMode::unless(flags.dry_run)).await?;
        if released > 0 {
            let migrations = counted(released as u64, "migration");
            say!("{migrations} of {} kept{}", object.title, note(flags.dry_run));
        }
    }
    // Everything is in the body, because with a body a server ignores the query.
    let body = json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "propagationPolicy": "Background", "preconditions": {"uid": object.uid},
        "dryRun": if flags.dry_run { &["All"][..] } else { &[] },
    });
    let body = body.to_string().into_bytes();
    let sent: Result<Value, _> = server.write(Method::DELETE, &object.path, "application/json", body).await;
    match sent {
        Ok(_) => say!("{} deleted{with}{}", object.title, note(flags.dry_run)),
        Err(error) if error.code() == Some(404) => {}
        Err(error) => return Err(refused(server, &object.title, &error)),
    }
    Ok(UninstallResult::Deleted(object))
}

fn deleted(manifest: &Manifest, found: &Value) -> Deleted {
    let uid = found["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    Deleted { title: manifest.title(), path: manifest.path(), uid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binding_that_shows_the_namespace_is_deleted_last() {
        let titles = |keep_webhook| -> Vec<String> {
            everything("ops", keep_webhook).iter().map(Manifest::title).collect()
        };
        let kept = titles(true);
        assert_eq!(kept.first().map(String::as_str), Some("deployment/restow in ops"));
        assert_eq!(kept[kept.len() - 2..], ["lease/restow in ops", "clusterrolebinding/restow"]);
        assert!(!kept.iter().any(|title| title.contains("webhook")), "{kept:?}");
        let all = titles(false);
        assert_eq!(all.first().map(String::as_str), Some("deployment/restow-webhook in ops"));
        let last = ["namespace/ops", "clusterrolebinding/restow-webhook", "clusterrolebinding/restow"];
        assert_eq!(all[all.len() - 3..], last);
        for title in ["secret/restow-webhook-certificates in ops", "lease/restow-webhook-certificates in ops"]
        {
            assert!(all.iter().any(|other| other == title), "{all:?}");
        }
        assert_eq!(all.iter().filter(|title| title.starts_with("namespace/")).count(), 1);
    }
}
