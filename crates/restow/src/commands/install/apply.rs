//! Applies manifests to a cluster, and prints the result for each.

use std::fmt;

use http::Method;
use restow_migrate::client::{RequestError, Server};
use serde_json::Value;

use super::changes::changes;
use super::manifest::{Manifest, PART_OF, is_ours};
use super::rules::{NAME, WEBHOOK};
use crate::connect::unreached;
use crate::error::CliError;
use crate::output::say;
use crate::program::program;

/// The namespace for a dry run of namespaced objects while their own namespace does not exist.
const STAND_IN: &str = "default";
/// The definition of the built-in migrator's API.
const IN_TREE: &str = "storageversionmigrations.storagemigration.k8s.io";

/// What applying an object did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Created,
    Configured,
    Unchanged,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        })
    }
}

/// What to do about an object, given what exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApplyAction {
    /// Apply it.
    Apply,
    /// Apply it to an object that existed before and that ours extends.
    TakeOver,
    /// Keep the object that existed before.
    Keep,
    /// Refuse: it belongs to something else.
    Refuse,
    /// Wait: it is being deleted.
    Wait,
}

/// Checks everything first, so that nothing is written if something cannot be applied; then applies it in order.
pub(crate) async fn apply(server: &Server, manifests: Vec<Manifest>, dry_run: bool) -> Result<(), CliError> {
    let namespace = manifests.iter().find(|manifest| manifest.kind() == "Namespace");
    let namespace = namespace.map(|namespace| namespace.name().to_owned());
    if let Some(namespace) = &namespace {
        only_here(server, namespace).await?;
    }
    let mut found = Vec::new();
    for manifest in &manifests {
        found.push(look(server, manifest).await?);
    }
    let judge = |(manifest, found): (&Manifest, &Option<Value>)| apply_action(manifest, found.as_ref());
    let actions: Vec<ApplyAction> = manifests.iter().zip(&found).map(judge).collect();
    refuse(&manifests, &actions)?;
    let absent =
        |(manifest, found): (&Manifest, &Option<Value>)| manifest.kind() == "Namespace" && found.is_none();
    let unmade = namespace.filter(|_| dry_run && manifests.iter().zip(&found).any(absent));
    for ((manifest, before), action) in manifests.into_iter().zip(found).zip(actions) {
        let title = manifest.title();
        if action == ApplyAction::Keep {
            say!("{title} kept as it is: it existed before");
            continue;
        }
        let after = send(server, tried(manifest, unmade.as_deref()), dry_run).await?;
        let taken = if action == ApplyAction::TakeOver { ", taken over from an earlier install" } else { "" };
        say!("{title} {}{taken}{}", change(before.as_ref(), &after), note(dry_run));
        if let Some(before) = &before {
            changes(before, &after).iter().for_each(|line| say!("  {line}"));
        }
    }
    Ok(())
}

/// Fails if restow is installed in another namespace: cluster-scoped objects exist once.
async fn only_here(server: &Server, namespace: &str) -> Result<(), CliError> {
    match installed_in(server).await?.filter(|other| other != namespace) {
        Some(other) => Err(CliError::failed(format!("restow is already installed in the namespace {other}"))
            .hint(format!(
                "use -n {other} to change that installation, or remove it first: {} uninstall",
                program()
            ))),
        None => Ok(()),
    }
}

/// The object in another namespace for a dry run, while its own does not exist.
fn tried(manifest: Manifest, unmade: Option<&str>) -> Manifest {
    if unmade.is_some() && manifest.namespace() == unmade { manifest.moved(STAND_IN) } else { manifest }
}

/// The suffix of messages in a dry run.
pub(crate) fn note(dry_run: bool) -> &'static str {
    if dry_run { " (dry run)" } else { "" }
}

/// An object as it is now.
pub(crate) async fn look(server: &Server, manifest: &Manifest) -> Result<Option<Value>, CliError> {
    match server.get(&manifest.path()).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.code() == Some(404) => Ok(None),
        Err(error) => Err(refused(server, &manifest.title(), &error)),
    }
}

/// The namespace of the ServiceAccounts that the ClusterRoles of the controllers and of the webhook are bound to.
pub(crate) async fn installed_in(server: &Server) -> Result<Option<String>, CliError> {
    for name in [NAME, WEBHOOK] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}");
        match server.get::<Value>(&path).await {
            Ok(binding) if is_ours(&binding) => {
                return Ok(binding["subjects"][0]["namespace"].as_str().map(str::to_owned));
            }
            Ok(_) => {}
            Err(error) if error.code() == Some(404) => {}
            Err(error) => return Err(refused(server, &format!("clusterrolebinding/{name}"), &error)),
        }
    }
    Ok(None)
}

fn apply_action(manifest: &Manifest, found: Option<&Value>) -> ApplyAction {
    match (manifest.kind(), found) {
        (_, Some(found)) if !found["metadata"]["deletionTimestamp"].is_null() => ApplyAction::Wait,
        (_, Some(found)) if is_ours(found) => ApplyAction::Apply,
        (_, None) => ApplyAction::Apply,
        ("CustomResourceDefinition", Some(_)) if manifest.name() != IN_TREE => ApplyAction::TakeOver,
        // Another program may have defined the built-in API with other objects.
        ("CustomResourceDefinition", Some(_)) => ApplyAction::Keep,
        ("Namespace", Some(_)) => ApplyAction::Keep,
        _ => ApplyAction::Refuse,
    }
}

fn refuse(manifests: &[Manifest], actions: &[ApplyAction]) -> Result<(), CliError> {
    for (manifest, action) in manifests.iter().zip(actions) {
        let title = manifest.title();
        match action {
            ApplyAction::Wait => {
                return Err(CliError::failed(format!("{title} is being deleted"))
                    .hint("wait until it is gone, then install again"));
            }
            ApplyAction::Refuse => {
                let labels = format!("{}=restow and {PART_OF}=restow", restow_api::MANAGED_BY);
                return Err(CliError::failed(format!("{title} already exists, and is not restow's"))
                    .hint(format!("delete it, or hand it over to restow with the labels {labels}")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Sends one object, with strict validation.
async fn send(server: &Server, manifest: Manifest, dry_run: bool) -> Result<Value, CliError> {
    let path = format!(
        "{}?fieldManager={NAME}&force=true&fieldValidation=Strict{}",
        manifest.path(),
        if dry_run { "&dryRun=All" } else { "" }
    );
    let body = manifest.object.to_string().into_bytes();
    let sent = server.write(Method::PATCH, &path, "application/apply-patch+yaml", body).await;
    sent.map_err(|error| refused(server, &manifest.title(), &error))
}

/// The error for a refused request, with what to do about it.
pub(crate) fn refused(server: &Server, title: &str, error: &RequestError) -> CliError {
    let failure = CliError::failed(format!("{title}: {error}"));
    match error.code() {
        Some(403) => {
            failure.hint("you can only grant permissions you hold; run as cluster-admin")
        }
        Some(404) => failure.hint("the API server must be Kubernetes 1.29 or later"),
        Some(415) => failure.hint(
            "this API server does not support server-side apply; run restow install --crds > FILE and kubectl \
            apply -f FILE instead",
        ),
        Some(401) => unreached(server, error),
        None => unreached(server, error)
            .about(title)
            .hint("check that the server is up, then run this again: finished steps are not repeated"),
        _ => failure,
    }
}

/// Compares an object before and after, without the fields that every write or its controllers change.
fn change(before: Option<&Value>, after: &Value) -> Change {
    let kept = |object: &Value| {
        let mut object = object.clone();
        object["status"] = Value::Null;
        for field in ["managedFields", "resourceVersion", "generation"] {
            object["metadata"][field] = Value::Null;
        }
        object
    };
    match before {
        None => Change::Created,
        Some(before) if kept(before) == kept(after) => Change::Unchanged,
        Some(_) => Change::Configured,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::install::manifest::labels;

    #[test]
    fn existing_objects_are_applied_kept_or_refused_by_their_owner() {
        let ours = json!({"metadata": {"labels": labels()}});
        let other = json!({"metadata": {"labels": {"app.kubernetes.io/name": "restow"}}});
        let going = json!({"metadata": {"labels": labels(), "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let own = "storagestates.migration.k8s.io";
        for (kind, name, found, expected) in [
            ("ClusterRole", NAME, None, ApplyAction::Apply),
            ("ClusterRole", NAME, Some(&ours), ApplyAction::Apply),
            ("ClusterRole", NAME, Some(&other), ApplyAction::Refuse),
            ("ClusterRole", NAME, Some(&going), ApplyAction::Wait),
            ("Namespace", NAME, Some(&ours), ApplyAction::Apply),
            ("Namespace", NAME, Some(&other), ApplyAction::Keep),
            ("Namespace", NAME, Some(&going), ApplyAction::Wait),
            ("CustomResourceDefinition", own, Some(&other), ApplyAction::TakeOver),
            ("CustomResourceDefinition", own, Some(&ours), ApplyAction::Apply),
            ("CustomResourceDefinition", IN_TREE, Some(&other), ApplyAction::Keep),
            ("CustomResourceDefinition", IN_TREE, Some(&ours), ApplyAction::Apply),
        ] {
            let manifest = Manifest::new("", json!({"kind": kind, "metadata": {"name": name}}));
            assert_eq!(apply_action(&manifest, found), expected, "{kind} {name} {found:?}");
        }
    }

    #[test]
    fn only_what_was_asked_for_counts_as_a_change() {
        let object = |version: &str, status: &str, replicas: u32| {
            json!({
                "metadata": {"name": "x", "resourceVersion": version, "managedFields": [version]},
                "spec": {"replicas": replicas}, "status": status,
            })
        };
        let before = object("1", "well", 1);
        for (before, after, expected) in [
            (None, object("1", "well", 1), Change::Created),
            (Some(&before), object("1", "well", 1), Change::Unchanged),
            (Some(&before), object("2", "ill", 1), Change::Unchanged),
            (Some(&before), object("2", "well", 2), Change::Configured),
        ] {
            assert_eq!(change(before, &after), expected, "{after}");
        }
    }
}
