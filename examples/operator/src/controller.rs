//! The reconcile loop: writes each page into a ConfigMap, and its address into the status.
//!
//! It reads and writes v1 only, whichever version users write and the store has: API servers convert.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use restow_lease::Stop;
use serde_json::json;

use crate::page::{config_map, config_map_name, status};
use crate::v1::Page;

/// How long to wait after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a page was not reconciled.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] kube::Error),
    /// The ConfigMap is not the page's.
    #[error("the ConfigMap {0} belongs to somebody else; rename the page, or delete the ConfigMap")]
    NotOurs(String),
}

/// Reconciles all pages until it is stopped.
pub async fn run(client: Client, stop: &Stop) {
    let pages: Api<Page> = Api::all(client.clone());
    let controller = Controller::new(pages, watcher::Config::default());
    let ended = controller.run(reconcile, retry, Arc::new(client)).for_each(async |done| match done {
        Ok((page, _)) => tracing::debug!(page = page.name, "reconciled"),
        Err(error) => tracing::warn!("could not reconcile a page: {error}"),
    });
    stop.unless(ended).await;
}

async fn reconcile(page: Arc<Page>, client: Arc<Client>) -> Result<Action, ReconcileError> {
    if page.metadata.deletion_timestamp.is_none() {
        write_config_map(&page, &client).await?;
        write_status(&page, &client).await?;
    }
    Ok(Action::await_change())
}

fn retry(_: Arc<Page>, _: &ReconcileError, _: Arc<Client>) -> Action {
    Action::requeue(RETRY_AFTER)
}

async fn write_config_map(page: &Page, client: &Client) -> Result<(), ReconcileError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &page.namespace().unwrap_or_default());
    let (name, wanted) = (config_map_name(page), config_map(page));
    let Some(mut found) = api.get_opt(&name).await? else {
        api.create(&PostParams::default(), &wanted).await?;
        return Ok(());
    };
    if !found.owner_references().iter().any(|owner| Some(&owner.uid) == page.metadata.uid.as_ref()) {
        return Err(ReconcileError::NotOurs(name));
    }
    if found.data != wanted.data {
        // It has the resourceVersion that was read, so nobody's change is overwritten.
        found.data = wanted.data;
        api.replace(&name, &PostParams::default(), &found).await?;
    }
    Ok(())
}

async fn write_status(page: &Page, client: &Client) -> Result<(), ReconcileError> {
    let wanted = status(page);
    if page.status.as_ref() == Some(&wanted) {
        return Ok(());
    }
    let api: Api<Page> = Api::namespaced(client.clone(), &page.namespace().unwrap_or_default());
    let metadata = json!({"uid": page.metadata.uid, "resourceVersion": page.metadata.resource_version});
    let patch = json!({"metadata": metadata, "status": wanted});
    match api.patch_status(&page.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        // It has changed since, or is gone: the watch tells.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        written => Ok(written.map(drop)?),
    }
}
