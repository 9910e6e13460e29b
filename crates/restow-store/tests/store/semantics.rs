//! The semantics that every store has to have.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, future::join_all};
use restow_store::{Change, Range, Store, StoreError, Unchanged, Write, Written};

use crate::support::{all, changes_until, done, entry, pairs, refused, within, write};

pub(crate) async fn a_write_needs_the_current_mod_revision(store: Arc<dyn Store>, at: &str) {
    let store = &*store;
    let key = &format!("{at}key");
    assert_eq!(store.get(key).await.unwrap().entry, None);
    assert_eq!(refused(store, key, 0, None).await, None, "nothing to delete");
    assert_eq!(refused(store, key, 1, Some("a")).await, None, "nothing to update");
    assert_eq!(refused(store, key, 1, None).await, None, "nothing to delete");

    let created = done(store, key, 0, Some("a")).await;
    let first = entry(key, "a", created, created);
    assert_eq!(refused(store, key, 0, Some("b")).await, Some(first.clone()), "there already");
    assert_eq!(refused(store, key, created - 1, Some("b")).await, Some(first.clone()), "too old");
    assert_eq!(refused(store, key, created + 1, None).await, Some(first), "not yet");

    let updated = done(store, key, created, Some("b")).await;
    assert!(updated > created);
    let second = entry(key, "b", created, updated);
    assert_eq!(refused(store, key, created, None).await, Some(second.clone()), "another was faster");
    let got = store.get(key).await.unwrap();
    assert_eq!(got.entry, Some(second));
    assert!(got.revision >= updated);

    let deleted = done(store, key, updated, None).await;
    assert!(deleted > updated);
    assert_eq!(store.get(key).await.unwrap().entry, None);
    assert_eq!(refused(store, key, updated, Some("c")).await, None, "deleted");
    let again = done(store, key, 0, Some("")).await;
    assert_eq!(store.get(key).await.unwrap().entry, Some(entry(key, "", again, again)));
    assert!(store.revision().await.unwrap() >= again);
}

pub(crate) async fn a_write_can_depend_on_another_key(store: Arc<dyn Store>, at: &str) {
    let (store, key, other) = (&*store, &format!("{at}key"), &format!("{at}other"));
    let write = async |expected: u64, value: Option<&'static str>, mod_revision: u64| {
        let write = Write { key: key.clone(), expected, value: value.map(Bytes::from) };
        let third = Unchanged { key: format!("{at}third"), mod_revision: 0 };
        let unchanged = vec![third, Unchanged { key: other.clone(), mod_revision }];
        store.write_while(write, unchanged).await.unwrap()
    };
    let conflict = |current| Some(Written::Conflict { current });
    assert_eq!(write(0, Some("a"), 1).await, None, "there is no other");
    assert_eq!(store.get(key).await.unwrap().entry, None);
    assert_eq!(write(0, None, 0).await, conflict(None), "nothing to delete");
    let Some(Written::Done { revision: first }) = write(0, Some("a"), 0).await else { panic!("not written") };
    let seen = done(store, other, 0, Some("x")).await;
    assert_eq!(write(first, Some("b"), 0).await, None, "the other is new");
    let there = entry(key, "a", first, first);
    assert_eq!(write(0, Some("b"), seen).await, conflict(Some(there.clone())), "the key itself is another");
    let changed = done(store, other, seen, Some("y")).await;
    assert_eq!(write(first, None, seen).await, None, "the other has changed");
    assert_eq!(store.get(key).await.unwrap().entry, Some(there));
    let third = done(store, &format!("{at}third"), 0, Some("z")).await;
    assert_eq!(write(first, None, changed).await, None, "one of two others is new");
    done(store, &format!("{at}third"), third, None).await;
    let Some(Written::Done { revision }) = write(first, None, changed).await else { panic!("not deleted") };
    assert!(revision > changed);
    assert_eq!(store.get(key).await.unwrap().entry, None);
}

pub(crate) async fn similar_keys_are_distinct(store: Arc<dyn Store>, at: &str) {
    let store = &*store;
    let names = ["a", "a/", "a/b", "a\0", "a\0b", "a\u{1}", "a0", "é", "é/b"];
    for name in names {
        done(store, &format!("{at}{name}"), 0, Some(name)).await;
    }
    for name in names {
        let got = store.get(&format!("{at}{name}")).await.unwrap().entry.unwrap();
        assert_eq!(got.value, name.as_bytes());
    }
    for prefix in ["", "a", "a/", "a\0", "b", "é"] {
        let mut expected: Vec<_> = names.iter().filter(|name| name.starts_with(prefix)).collect();
        expected.sort();
        let found = pairs(store, all(&format!("{at}{prefix}"))).await;
        let found: Vec<_> = found.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(found, expected.into_iter().copied().collect::<Vec<_>>(), "{prefix:?}");
    }
}

pub(crate) async fn a_list_shows_one_revision(store: Arc<dyn Store>, at: &str) {
    let store = &*store;
    let key = |name: &str| format!("{at}list/{name}");
    let a = done(store, &key("a"), 0, Some("1")).await;
    let b = done(store, &key("b"), 0, Some("1")).await;
    let then = store.revision().await.unwrap();
    let a = done(store, &key("a"), a, Some("2")).await;
    done(store, &key("b"), b, None).await;
    done(store, &key("c"), 0, Some("2")).await;
    done(store, &format!("{at}listed"), 0, Some("no")).await;

    let listed = store.list(all(&key(""))).await.unwrap();
    assert_eq!((listed.remaining, listed.entries.len()), (0, 2));
    assert!(listed.revision > a);
    let pair = |name: &str, value: &str| (key(name), value.to_owned());
    assert_eq!(pairs(store, all(&key(""))).await, [pair("a", "2"), pair("c", "2")]);
    let before = Range { revision: Some(then), ..all(&key("")) };
    assert_eq!(store.list(before.clone()).await.unwrap().revision, then);
    assert_eq!(pairs(store, before.clone()).await, [pair("a", "1"), pair("b", "1")]);
    let from = Range { start: Some(key("b")), ..before };
    assert_eq!(pairs(store, from).await, [pair("b", "1")]);
    let early = Range { start: Some(at.to_owned()), ..all(&key("")) };
    assert_eq!(pairs(store, early).await, [pair("a", "2"), pair("c", "2")]);
    let late = Range { start: Some(format!("{at}z")), ..all(&key("")) };
    assert_eq!(pairs(store, late).await, []);
}

pub(crate) async fn pages_belong_to_one_revision(store: Arc<dyn Store>, at: &str) {
    let store = &*store;
    let key = |number: u32| format!("{at}pages/{number:02}");
    let mut revisions = Vec::new();
    for number in 0..25 {
        revisions.push(done(store, &key(number), 0, Some("old")).await);
    }
    let mut range = Range { limit: 10, ..all(&format!("{at}pages/")) };
    let mut seen = Vec::new();
    for remaining in [15, 5, 0] {
        let page = store.list(range.clone()).await.unwrap();
        assert_eq!(page.remaining, remaining);
        seen.extend(page.entries.iter().map(|entry| (entry.key.clone(), entry.mod_revision)));
        range.start = Some(format!("{}\0", seen.last().unwrap().0));
        range.revision = Some(page.revision);
        // Meanwhile keys before and after the page are changed, created and deleted.
        for number in [3, 12, 22].map(|number| number + remaining as u32 / 5) {
            let now = store.get(&key(number)).await.unwrap().entry.map_or(0, |entry| entry.mod_revision);
            done(store, &key(number), now, Some("new")).await;
        }
        let last = store.get(&key(24)).await.unwrap().entry.map_or(0, |entry| entry.mod_revision);
        done(store, &key(24), last, (last == 0).then_some("again")).await;
        done(store, &key(100 + remaining as u32), 0, Some("new")).await;
    }
    let expected: Vec<_> = (0..25).map(|number| (key(number), revisions[number as usize])).collect();
    assert_eq!(seen, expected);
    // The remaining keys are counted for any start key.
    let own = Range { start: Some(key(20)), limit: 2, ..range };
    assert_eq!(store.list(own).await.unwrap().remaining, 3);
}

pub(crate) async fn a_watch_delivers_history_and_new_changes(store: Arc<dyn Store>, at: &str) {
    let store = &*store;
    let (key, other) = (&format!("{at}watch/key"), &format!("{at}other"));
    let start = store.revision().await.unwrap();
    let created = done(store, key, 0, Some("a")).await;
    done(store, other, 0, Some("a")).await;
    let updated = done(store, key, created, Some("b")).await;
    let mut watch = store.watch(&format!("{at}watch/"), start).await.unwrap();
    let mut late = store.watch(&format!("{at}watch/"), updated).await.unwrap();
    let deleted = done(store, key, updated, None).await;
    let again = done(store, key, 0, Some("c")).await;

    let (first, second) = (entry(key, "a", created, created), entry(key, "b", created, updated));
    let change = |revision, before, now| Change { key: key.clone(), revision, now, before };
    let expected = [
        change(created, None, Some(first.clone())),
        change(updated, Some(first), Some(second.clone())),
        change(deleted, Some(second), None),
        change(again, None, Some(entry(key, "c", again, again))),
    ];
    assert_eq!(changes_until(&mut watch, again).await, expected);
    assert_eq!(changes_until(&mut late, again).await, expected[2..]);

    let elsewhere =
        done(store, other, store.get(other).await.unwrap().entry.unwrap().mod_revision, None).await;
    assert_eq!(changes_until(&mut watch, elsewhere).await, [], "told how far it is");
}

pub(crate) async fn a_compacted_revision_cannot_be_read(store: Arc<dyn Store>, at: &str) {
    let store = &*store;
    let (key, gone) = (&format!("{at}gone/key"), &format!("{at}gone/deleted"));
    let first = done(store, key, 0, Some("1")).await;
    let deleted = done(store, gone, 0, Some("1")).await;
    let second = done(store, key, first, Some("2")).await;
    done(store, gone, deleted, None).await;
    let third = done(store, key, second, Some("3")).await;
    let fourth = done(store, key, third, Some("4")).await;
    let listed = |revision| store.list(Range { revision: Some(revision), ..all(&format!("{at}gone/")) });
    assert_eq!(listed(second).await.unwrap().entries.len(), 2);

    store.compact(third).await.unwrap();
    store.compact(second).await.unwrap();
    for asked in [first, second, third - 1] {
        let compacted = StoreError::Compacted { asked, oldest: third };
        assert_eq!(listed(asked).await.unwrap_err(), compacted);
    }
    assert_eq!(listed(third).await.unwrap().entries, [entry(key, "3", first, third)]);
    assert_eq!(listed(fourth).await.unwrap().entries, [entry(key, "4", first, fourth)]);
    let mut watch = store.watch(at, third).await.unwrap();
    let changes = changes_until(&mut watch, fourth).await;
    assert_eq!(changes[0].before, Some(entry(key, "3", first, third)));
    let early = match store.watch(at, first).await {
        Ok(mut watch) => within("the end", watch.next()).await.unwrap().unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(early, StoreError::Compacted { asked: first, oldest: third });
}

pub(crate) async fn a_future_revision_is_an_error(store: Arc<dyn Store>, at: &str) {
    let newest = done(&*store, &format!("{at}key"), 0, Some("a")).await;
    let future = Err(StoreError::Future { asked: newest + 5, newest });
    let listed = store.list(Range { revision: Some(newest + 5), ..all(at) }).await;
    assert_eq!(listed.map(drop), future);
    assert_eq!(store.watch(at, newest + 5).await.map(drop), future);
    assert_eq!(store.compact(newest + 5).await, future);
    assert_eq!(store.revision().await.unwrap(), newest);
}

pub(crate) async fn a_watch_delivers_every_change_once(store: Arc<dyn Store>, at: &str) {
    const WRITERS: usize = 6;
    const WRITES: usize = 60;
    let start = store.revision().await.unwrap();
    let prefix = format!("{at}busy/");
    let writer = |_| {
        let (store, prefix) = (Arc::clone(&store), prefix.clone());
        async move { tokio::spawn(busy_writer(store, prefix, WRITES)).await.unwrap() }
    };
    let watcher = |number: u64| {
        let (store, prefix) = (Arc::clone(&store), prefix.clone());
        let writes = (WRITERS * WRITES) as u64;
        async move {
            // Each watch starts at another time, and all at the same revision.
            while store.revision().await.unwrap() < start + number * writes / 5 {
                tokio::task::yield_now().await;
            }
            let mut watch = store.watch(&prefix, start).await.unwrap();
            let mut changes = Vec::new();
            while changes.len() < WRITERS * WRITES {
                let next = within("a change", watch.next()).await.unwrap().unwrap();
                changes.extend(next.changes);
            }
            changes
        }
    };
    let watchers: Vec<_> = (0..5).map(|number| tokio::spawn(watcher(number))).collect();
    let written: Vec<u64> = join_all((0..WRITERS).map(writer)).await.into_iter().flatten().collect();
    let mut written = written;
    written.sort_unstable();
    for watcher in watchers {
        let changes = watcher.await.unwrap();
        let told: Vec<u64> = changes.iter().map(|change| change.revision).collect();
        assert_eq!(told, written);
        let mut state = BTreeMap::new();
        for change in changes {
            assert_eq!(change.before.as_ref(), state.get(&change.key), "{change:?}");
            match change.now {
                Some(now) => state.insert(change.key, now),
                None => state.remove(&change.key),
            };
        }
    }
}

/// Creates, updates and deletes a few keys that other writers use too; returns the revisions of its writes.
async fn busy_writer(store: Arc<dyn Store>, prefix: String, writes: usize) -> Vec<u64> {
    let mut revisions = Vec::new();
    let mut turn = 0;
    while revisions.len() < writes {
        let key = format!("{prefix}{}", turn % 4);
        let current = store.get(&key).await.unwrap().entry;
        let value = (current.is_none() || turn % 3 != 0).then(|| Bytes::from(format!("{turn}")));
        let expected = current.map_or(0, |entry| entry.mod_revision);
        let written = store.write(Write { key, expected, value }).await.unwrap();
        if let Written::Done { revision } = written {
            revisions.push(revision);
        }
        turn += 1;
    }
    revisions
}

pub(crate) async fn a_slow_watch_misses_nothing(store: Arc<dyn Store>, at: &str) {
    let value = "x".repeat(64 << 10);
    let start = store.revision().await.unwrap();
    let mut watch = store.watch(at, start).await.unwrap();
    let mut expected = vec![done(&*store, &format!("{at}first"), 0, Some("a")).await];
    // It receives a change before it becomes slow.
    assert_eq!(changes_until(&mut watch, expected[0]).await.len(), 1);
    for number in 0..100 {
        let key = format!("{at}{number}");
        let Written::Done { revision } = write(&*store, &key, 0, Some(&value)).await else { panic!() };
        expected.push(revision);
    }
    let changes = changes_until(&mut watch, *expected.last().unwrap()).await;
    let told: Vec<u64> = changes.iter().map(|change| change.revision).collect();
    assert_eq!(told, expected[1..]);
}
