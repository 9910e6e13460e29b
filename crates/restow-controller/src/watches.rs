//! Watches on definitions, StorageVersions, API servers and StorageStates: a change wakes the trigger.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use restow_api::StorageState;
use restow_core::controller::retry;
use restow_migrate::client::plain;
use serde::de::DeserializeOwned;

use crate::context::{Context, changed};

/// How often to check whether the cluster serves StorageVersions.
const STORAGE_VERSIONS_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The timeout of a watch in seconds: shorter than the time after which the client gives up a silent connection.
pub(crate) const WATCH_TIMEOUT: u32 = 55;

/// Wakes the trigger at every change of a definition, a StorageVersion, an API server or a StorageState.
pub(crate) async fn run(context: &Context) {
    futures::join!(definitions(context), registrations(context), members(context), states(context));
}

/// A changed definition may change a storage version.
async fn definitions(context: &Context) {
    wake_on_change::<CustomResourceDefinition>(context).await;
}

/// The API servers publish their storage versions as StorageVersions.
async fn registrations(context: &Context) {
    let api = Api::<StorageVersion>::all(context.client().clone());
    let mut tries = 0_u32;
    while let Err(error) = api.list_metadata(&kube::api::ListParams::default().limit(1)).await {
        tries = tries.saturating_add(1);
        tokio::time::sleep(retry_delay(&error, tries)).await;
    }
    wake_on_change::<StorageVersion>(context).await;
}

/// When to ask again for the StorageVersions. Most clusters do not serve them, but may after an upgrade; other
/// errors are temporary.
fn retry_delay(error: &kube::Error, tries: u32) -> Duration {
    match error {
        kube::Error::Api(status) if status.code == 404 => STORAGE_VERSIONS_CHECK_INTERVAL,
        _ => retry::request_backoff(tries),
    }
}

/// Users delete a StorageState to reset it: it is created again, and all objects are migrated.
async fn states(context: &Context) {
    wake_on::<StorageState>(context, |event| matches!(event, watcher::Event::Delete(_))).await;
}

async fn wake_on_change<K>(context: &Context)
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::Scope: Send,
{
    let changes = |event: &_| matches!(event, watcher::Event::Apply(_) | watcher::Event::Delete(_));
    wake_on::<K>(context, changes).await;
}

async fn wake_on<K>(context: &Context, wakes: impl Fn(&watcher::Event<PartialObjectMeta<K>>) -> bool)
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::Scope: Send,
{
    let api = Api::<PartialObjectMeta<K>>::all(context.client().clone());
    let stream = watcher(api, watcher::Config::default().timeout(WATCH_TIMEOUT)).default_backoff();
    stream
        .for_each(|event| {
            if event.is_ok_and(|event| wakes(&event)) {
                changed(&context.storage_changed);
            }
            std::future::ready(())
        })
        .await;
}

/// An API server that starts, stops or restarts may change storage versions; one that only renews its Lease does not.
async fn members(context: &Context) {
    let api = Api::<Lease>::namespaced(context.client().clone(), "kube-system");
    let config = watcher::Config::default()
        .labels("apiserver.kubernetes.io/identity=kube-apiserver")
        .timeout(WATCH_TIMEOUT);
    let mut holders: HashMap<String, Option<String>> = HashMap::new();
    let stream = watcher(api, config).default_backoff().map_err(
        |error| tracing::debug!(error = %plain(&error), "the watch of identity Leases failed; reopening it"),
    );
    stream
        .for_each(|event| {
            let changed_holder = match event {
                Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease)) => {
                    let holder = lease.spec.and_then(|spec| spec.holder_identity);
                    let name = lease.metadata.name.unwrap_or_default();
                    holders.insert(name, holder.clone()) != Some(holder)
                }
                Ok(watcher::Event::Delete(lease)) => {
                    holders.remove(&lease.metadata.name.unwrap_or_default()).is_some()
                }
                _ => false,
            };
            if changed_holder {
                changed(&context.storage_changed);
            }
            std::future::ready(())
        })
        .await;
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_cluster_without_storage_versions_is_asked_once_a_minute() {
        for (code, tries, seconds) in
            [(404, 1, 60), (404, 9, 60), (503, 1, 1), (503, 3, 4), (403, 9, 60), (500, u32::MAX, 60)]
        {
            let error = kube::Error::Api(Box::new(Status { code, ..Status::default() }));
            assert_eq!(retry_delay(&error, tries).as_secs(), seconds, "{code} {tries}");
        }
    }
}
