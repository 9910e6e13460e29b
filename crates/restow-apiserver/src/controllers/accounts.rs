//! Gives every namespace a ServiceAccount `default`, as kube-controller-manager does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use restow_store::{Entry, Range, StoreError};
use serde_json::{Value, json};

use super::writer::Writer;
use crate::object::meta::{is_deleting, name};
use crate::object::stored::DecodeScope;
use crate::verbs::api::Api;

const NAMESPACES: &str = "/registry/namespaces/";
const ACCOUNTS: &str = "/registry/serviceaccounts/";
const DEFAULT: &str = "default";
/// The pause before another try after an error.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Creates missing accounts; never ends.
pub(super) async fn run(api: Arc<Api>, writer: Writer) {
    loop {
        if let Err(error) = follow(&api, &writer).await {
            tracing::warn!(
                "could not follow namespaces to create default ServiceAccounts: {error}; retrying"
            );
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

async fn follow(api: &Api, writer: &Writer) -> Result<(), StoreError> {
    let range = Range { prefix: NAMESPACES.to_owned(), start: None, limit: 0, revision: None };
    let listed = api.store.list(range).await?;
    let mut namespaces = api.store.watch(NAMESPACES, listed.revision).await?;
    let mut accounts = api.store.watch(ACCOUNTS, listed.revision).await?;
    let mut missing: BTreeSet<String> =
        listed.entries.into_iter().filter_map(|entry| active(api, entry)).collect();
    loop {
        let mut failed = BTreeSet::new();
        for namespace in std::mem::take(&mut missing) {
            if let Err(error) = ensure(api, writer, &namespace).await {
                tracing::debug!(%namespace, "could not create the default ServiceAccount: {error}; retrying");
                failed.insert(namespace);
            }
        }
        missing = failed;
        tokio::select! {
            biased;
            event = namespaces.next() => {
                let Some(event) = event.transpose()? else { return Ok(()) };
                let entries = event.changes.into_iter().filter_map(|change| change.now);
                missing.extend(entries.filter_map(|entry| active(api, entry)));
            }
            event = accounts.next() => {
                let Some(event) = event.transpose()? else { return Ok(()) };
                let gone = event.changes.iter().filter(|change| change.now.is_none());
                missing.extend(gone.filter_map(|change| namespace_of(&change.key)).map(str::to_owned));
            }
            () = tokio::time::sleep(RETRY_AFTER), if !missing.is_empty() => {}
        }
    }
}

/// The namespace, if the key is that of its default account.
fn namespace_of(key: &str) -> Option<&str> {
    let (namespace, name) = key.strip_prefix(ACCOUNTS)?.split_once('/')?;
    (name == DEFAULT).then_some(namespace)
}

/// The name of the namespace, unless it is being deleted.
fn active(api: &Api, entry: Entry) -> Option<String> {
    let namespaces = api.registry.built_in("", "namespaces")?;
    let namespace = api.decode(&namespaces, entry, DecodeScope::Metadata).ok()?;
    (!is_deleting(&namespace)).then(|| name(&namespace).to_owned())
}

/// Creates the account unless it exists or the namespace is being deleted.
async fn ensure(api: &Api, writer: &Writer, namespace: &str) -> Result<(), Box<dyn std::error::Error>> {
    let found = api.store.get(&format!("{ACCOUNTS}{namespace}/{DEFAULT}")).await?;
    if found.entry.is_some() {
        return Ok(());
    }
    let account: Value = json!({"metadata": {"name": DEFAULT, "namespace": namespace}});
    match writer.create(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await {
        Ok(_) => Ok(()),
        // The namespace is being deleted.
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_default_accounts_are_created_again() {
        for (key, expected) in [
            ("/registry/serviceaccounts/a/default", Some("a")),
            ("/registry/serviceaccounts/a/other", None),
            ("/registry/serviceaccounts/default", None),
            ("/registry/secrets/a/default", None),
        ] {
            assert_eq!(namespace_of(key), expected, "{key}");
        }
    }
}
