//! Functions that the tests of stores share.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use restow_store::{Change, Changes, Entry, Range, Store, StoreError, Write, Written};

/// The timeout of every step.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, work).await.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}

pub(crate) async fn write(store: &dyn Store, key: &str, expected: u64, value: Option<&str>) -> Written {
    let value = value.map(|value| Bytes::copy_from_slice(value.as_bytes()));
    store.write(Write { key: key.into(), expected, value }).await.unwrap()
}

/// A write that must succeed; returns its revision.
pub(crate) async fn done(store: &dyn Store, key: &str, expected: u64, value: Option<&str>) -> u64 {
    match write(store, key, expected, value).await {
        Written::Done { revision } => revision,
        conflict => panic!("{key}: {conflict:?}"),
    }
}

/// A write that must conflict; returns the current entry.
pub(crate) async fn refused(
    store: &dyn Store,
    key: &str,
    expected: u64,
    value: Option<&str>,
) -> Option<Entry> {
    match write(store, key, expected, value).await {
        Written::Conflict { current } => current,
        done => panic!("{key}: {done:?}"),
    }
}

pub(crate) fn entry(key: &str, value: &str, create_revision: u64, mod_revision: u64) -> Entry {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Entry { key: key.into(), value, create_revision, mod_revision }
}

pub(crate) fn all(prefix: &str) -> Range {
    Range { prefix: prefix.into(), start: None, limit: 0, revision: None }
}

/// The keys and values of a list.
pub(crate) async fn pairs(store: &dyn Store, range: Range) -> Vec<(String, String)> {
    let listed = store.list(range).await.unwrap();
    let text = |value: &Bytes| String::from_utf8(value.to_vec()).unwrap();
    listed.entries.iter().map(|entry| (entry.key.clone(), text(&entry.value))).collect()
}

/// Reads a watch until it has delivered all changes up to a revision, and checks that each message continues the one before.
pub(crate) async fn changes_until(
    watch: &mut BoxStream<'static, Result<Changes, StoreError>>,
    revision: u64,
) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    let mut told = 0;
    while told < revision {
        let next = within("a change", watch.next()).await.expect("an end").expect("no error");
        assert!(next.revision >= told, "{next:?} after {told}");
        for change in &next.changes {
            assert!(change.revision > told && change.revision <= next.revision, "{change:?} after {told}");
        }
        told = next.revision;
        changes.extend(next.changes);
    }
    changes
}
