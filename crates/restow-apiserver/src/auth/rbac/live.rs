//! A policy that follows the roles and bindings in the store.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt as _};
use restow_store::encryption::Transformers;
use restow_store::{Changes, Entry, Range, Store, StoreError};
use tokio_util::sync::CancellationToken;

use super::policy::{Kind, Policy};

/// The pause after an error of the store.
const AFTER_AN_ERROR: Duration = Duration::from_millis(500);
/// How many batches of changes are applied together at most.
const AT_ONCE: usize = 256;
/// The page size of the first list.
const PAGE: usize = 500;

type PolicyChange = (Kind, Result<Changes, StoreError>);

/// The current policy. Each request uses one immutable snapshot of it.
#[derive(Debug, Default)]
pub(crate) struct LivePolicy(ArcSwap<Policy>);

impl LivePolicy {
    /// Reads the policy, and follows the store in a task until `stop` is cancelled.
    pub(crate) async fn follow(
        store: &Arc<dyn Store>,
        encryption: &Arc<ArcSwapOption<Transformers>>,
        stop: CancellationToken,
    ) -> Result<Arc<Self>, StoreError> {
        let source = Source { store: Arc::clone(store), encryption: Arc::clone(encryption) };
        let (policy, changes) = source.load().await?;
        let live = Arc::new(Self(ArcSwap::from_pointee(policy.clone())));
        let followed = Arc::clone(&live);
        tokio::spawn(async move { stop.run_until_cancelled(followed.run(&source, policy, changes)).await });
        Ok(live)
    }

    #[cfg(test)]
    /// A policy that never changes.
    pub(crate) fn fixed(policy: Policy) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(policy)))
    }

    /// The policy as it is now.
    pub(crate) fn current(&self) -> Arc<Policy> {
        self.0.load_full()
    }

    async fn run(
        &self,
        source: &Source,
        mut policy: Policy,
        mut changes: SelectAll<BoxStream<'static, PolicyChange>>,
    ) {
        loop {
            let error = self.take(source, &mut policy, changes).await;
            // The old policy stays in force meanwhile, as in kube-apiserver.
            tracing::warn!(%error, "the watch of roles and bindings ended; listing them again");
            (policy, changes) = loop {
                tokio::time::sleep(AFTER_AN_ERROR).await;
                match source.load().await {
                    Ok(loaded) => break loaded,
                    Err(error) => tracing::debug!(%error, "could not list roles and bindings; retrying"),
                }
            };
            self.0.store(Arc::new(policy.clone()));
        }
    }

    /// Applies changes until there is an error.
    async fn take(
        &self,
        source: &Source,
        policy: &mut Policy,
        changes: impl Stream<Item = PolicyChange> + Unpin,
    ) -> StoreError {
        let mut changes = changes.ready_chunks(AT_ONCE);
        while let Some(batch) = changes.next().await {
            let mut any = false;
            for (kind, event) in batch {
                let event = match event {
                    Ok(event) => event,
                    Err(error) => return error,
                };
                for change in event.changes {
                    source.apply(policy, kind, &change.key, change.now.as_ref());
                    any = true;
                }
            }
            if any {
                self.0.store(Arc::new(policy.clone()));
            }
        }
        StoreError::Unavailable("the watch has ended".to_owned())
    }
}

fn prefix(kind: Kind) -> String {
    format!("/registry/{}/", kind.resource())
}

/// The namespace and name in a key; none if the key is of another kind.
fn namespace_and_name(kind: Kind, key: &str) -> Option<(&str, &str)> {
    let rest = key.strip_prefix("/registry/")?.strip_prefix(kind.resource())?.strip_prefix('/')?;
    match (kind, rest.split_once('/')) {
        (Kind::Role | Kind::RoleBinding, Some((namespace, name))) => Some((namespace, name)),
        (Kind::ClusterRole | Kind::ClusterRoleBinding, None) => Some(("", rest)),
        _ => None,
    }
}

/// The store, and how it is encrypted.
struct Source {
    store: Arc<dyn Store>,
    encryption: Arc<ArcSwapOption<Transformers>>,
}

impl Source {
    /// Adds or removes one object. An object that cannot be decrypted grants nothing.
    fn apply(&self, policy: &mut Policy, kind: Kind, key: &str, entry: Option<&Entry>) {
        let Some((namespace, name)) = namespace_and_name(kind, key) else { return };
        let opened = entry.map(|entry| self.open(kind, entry));
        policy.set(kind, namespace, name, opened.as_deref());
    }

    fn open(&self, kind: Kind, entry: &Entry) -> Bytes {
        let Some(transformers) = &*self.encryption.load() else { return entry.value.clone() };
        let opened =
            transformers.of(super::roles::GROUP, kind.resource()).decrypt(&entry.key, entry.value.clone());
        opened.map(|opened| opened.plain).unwrap_or_else(|error| {
            tracing::error!(%error, "could not decrypt a role or binding; it grants nothing");
            Bytes::new()
        })
    }

    /// All roles and bindings, and their changes from then on.
    async fn load(&self) -> Result<(Policy, SelectAll<BoxStream<'static, PolicyChange>>), StoreError> {
        let mut policy = Policy::default();
        let mut changes = SelectAll::new();
        for kind in Kind::ALL {
            let revision = self.load_kind(kind, &mut policy).await?;
            let event = self.store.watch(&prefix(kind), revision).await?;
            changes.push(event.map(move |event| (kind, event)).boxed());
        }
        Ok((policy, changes))
    }

    async fn load_kind(&self, kind: Kind, policy: &mut Policy) -> Result<u64, StoreError> {
        let mut range = Range { prefix: prefix(kind), start: None, limit: PAGE, revision: None };
        loop {
            let page = self.store.list(range.clone()).await?;
            for entry in &page.entries {
                self.apply(policy, kind, &entry.key, Some(entry));
            }
            let Some(last) = page.entries.last().filter(|_| page.remaining > 0) else {
                return Ok(page.revision);
            };
            range.revision = Some(page.revision);
            range.start = Some(format!("{}\0", last.key));
        }
    }
}

#[cfg(test)]
mod tests {
    use restow_store::file::{FileSettings, FileStore};
    use restow_store::{Write, Written};
    use serde_json::json;

    use super::*;
    use crate::auth::attributes::{Attributes, ResourceAttributes};
    use crate::auth::user::User;

    const CONFIGURATION: &str = "
        apiVersion: apiserver.config.k8s.io/v1
        kind: EncryptionConfiguration
        resources:
        - resources: ['clusterroles.rbac.authorization.k8s.io']
          providers:
          - secretbox: { keys: [ { name: key1, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE= } ] }
          - identity: {}
    ";

    /// Writes over any current value. ClusterRoles are encrypted.
    async fn put(store: &Arc<dyn Store>, key: &str, value: Option<serde_json::Value>) {
        let expected = store.get(key).await.unwrap().entry.map_or(0, |entry| entry.mod_revision);
        let transformers = Transformers::parse(CONFIGURATION.as_bytes()).unwrap();
        let resource = key.split('/').nth(2).unwrap();
        let transformer = transformers.of(super::super::roles::GROUP, resource);
        let value = value.map(|value| transformer.encrypt(key, value.to_string().into()).unwrap());
        let written = store.write(Write { key: key.to_owned(), expected, value }).await.unwrap();
        assert!(matches!(written, Written::Done { .. }));
    }

    async fn until(what: &str, mut done: impl FnMut() -> bool) {
        let wait = async {
            while !done() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.expect(what);
    }

    #[tokio::test]
    async fn the_policy_follows_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(FileStore::open(dir.path(), FileSettings::default()).unwrap());
        let transformers = Transformers::parse(CONFIGURATION.as_bytes()).unwrap();
        let encryption = Arc::new(ArcSwapOption::from_pointee(transformers));
        let role = |resource: &str| json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}]});
        let binding = |kind: &str| json!({"subjects": [{"kind": "User", "name": "u"}], "roleRef": {"kind": kind, "name": "r"}});
        // More than one page before the role under test.
        for n in 0..PAGE + 1 {
            put(&store, &format!("/registry/clusterroles/a{n}"), Some(json!({}))).await;
        }
        put(&store, "/registry/clusterroles/r", Some(role("pods"))).await;
        put(&store, "/registry/clusterrolebindings/b", Some(binding("ClusterRole"))).await;
        let stop = CancellationToken::new();
        let live = LivePolicy::follow(&store, &encryption, stop.clone()).await.unwrap();
        let user = User::known("u", [""; 0]);
        let allows = |resource: &str, namespace: &str| {
            let on = ResourceAttributes { resource, namespace, ..ResourceAttributes::default() };
            live.current().allows(&user, &Attributes::of_resource("get", on))
        };
        assert!(allows("pods", "") && !allows("secrets", "a"));
        put(&store, "/registry/rolebindings/a/b", Some(binding("Role"))).await;
        put(&store, "/registry/roles/a/r", Some(role("secrets"))).await;
        until("a role in a namespace", || allows("secrets", "a")).await;
        assert!(!allows("secrets", "b"));
        put(&store, "/registry/clusterrolebindings/b", None).await;
        until("a binding that is gone", || !allows("pods", "")).await;
        stop.cancel();
    }

    #[test]
    fn keys_outside_of_roles_and_bindings_are_ignored() {
        for (kind, key, expected) in [
            (Kind::Role, "/registry/roles/default/r", Some(("default", "r"))),
            (Kind::Role, "/registry/roles/r", None),
            (Kind::Role, "/registry/rolebindings/default/r", None),
            (Kind::RoleBinding, "/registry/rolebindings/default/r", Some(("default", "r"))),
            (Kind::ClusterRole, "/registry/clusterroles/system:x", Some(("", "system:x"))),
            (Kind::ClusterRole, "/registry/clusterroles/a/b", None),
            (Kind::ClusterRoleBinding, "/registry/clusterrolebindings/b", Some(("", "b"))),
            (Kind::ClusterRoleBinding, "b", None),
        ] {
            assert_eq!(namespace_and_name(kind, key), expected, "{key}");
        }
    }
}
