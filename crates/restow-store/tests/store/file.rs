//! The store in a file.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use restow_store::{
    Range, Store, StoreError,
    file::{FileSettings, FileStore, Keep, OpenError},
};
use tempfile::TempDir;

use crate::{
    semantics,
    support::{all, done},
};

/// A store that keeps all history.
pub(crate) fn open(dir: &TempDir) -> FileStore {
    let keep = Keep { time: None, changes: u64::MAX };
    FileStore::open(dir.path(), FileSettings { keep, cache: 8 << 20 }).unwrap()
}

macro_rules! check_semantics {
    ($($rule:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $rule() {
            let dir = tempfile::tempdir().unwrap();
            semantics::$rule(Arc::new(open(&dir)), "/registry/").await;
        }
    )*};
}

check_semantics! {
    a_write_needs_the_current_mod_revision,
    a_write_can_depend_on_another_key,
    similar_keys_are_distinct,
    a_list_shows_one_revision,
    pages_belong_to_one_revision,
    a_watch_delivers_history_and_new_changes,
    a_slow_watch_misses_nothing,
    a_compacted_revision_cannot_be_read,
    a_future_revision_is_an_error,
    a_watch_delivers_every_change_once,
}

#[test]
fn only_the_owner_can_read_a_new_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    drop(open(&dir));
    let mode = std::fs::metadata(dir.path().join("store.redb")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_second_store_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let error = FileStore::open(dir.path(), FileSettings::default()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    let revision = done(&store, "/a", 0, Some("a")).await;
    drop(store);
    assert_eq!(open(&dir).revision().await.unwrap(), revision);
}

#[tokio::test]
async fn the_revision_of_an_empty_store_is_not_zero() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(open(&dir).list(all("/")).await.unwrap().revision, 1);
}

#[tokio::test]
async fn a_watch_ends_when_its_store_is_closed() {
    use futures::StreamExt;

    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let mut watch = store.watch("/", 1).await.unwrap();
    done(&store, "/a", 0, Some("a")).await;
    assert_eq!(watch.next().await.unwrap().unwrap().changes.len(), 1);
    drop(store);
    let error = crate::support::within("the end", watch.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert!(watch.next().await.is_none());
    open(&dir);
}

#[tokio::test]
async fn old_history_is_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let keep = Keep { time: Some(Duration::from_millis(20)), changes: u64::MAX };
    let store = FileStore::open(dir.path(), FileSettings { keep, ..FileSettings::default() }).unwrap();
    let first = done(&store, "/a", 0, Some("a")).await;
    let second = done(&store, "/a", first, Some("b")).await;
    let then = Range { revision: Some(first), ..all("/") };
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.list(then.clone()).await.is_ok() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let gone = StoreError::Compacted { asked: first, oldest: second };
    assert_eq!(store.list(then).await.unwrap_err(), gone);
    assert_eq!(store.list(all("/")).await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn history_beyond_its_limit_is_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let settings = FileSettings { keep: Keep { time: None, changes: 10 }, ..FileSettings::default() };
    let store = FileStore::open(dir.path(), settings).unwrap();
    let mut revision = 0;
    for _ in 0..40 {
        revision = done(&store, "/a", revision, Some("a")).await;
    }
    let oldest = match store.list(Range { revision: Some(2), ..all("/") }).await {
        Err(StoreError::Compacted { oldest, .. }) => oldest,
        other => panic!("{other:?}"),
    };
    assert!((revision - 12..=revision - 10).contains(&oldest), "{oldest} of {revision}");
}

#[tokio::test]
async fn a_key_with_many_versions_is_listed_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    done(&store, "/a", 0, Some("a")).await;
    let mut revisions = vec![0];
    for number in 0..50 {
        let value = format!("{number}");
        revisions.push(done(&store, "/b", *revisions.last().unwrap(), Some(&value)).await);
    }
    done(&store, "/c", 0, Some("c")).await;
    for at in [1, 17, 18, 50] {
        let listed = store.list(Range { revision: Some(revisions[at]), ..all("/") }).await.unwrap();
        assert_eq!(listed.entries[1].value, format!("{}", at - 1));
        assert_eq!(listed.entries.len(), 2);
    }
    let now = store.list(Range { limit: 2, ..all("/") }).await.unwrap();
    assert_eq!((now.entries[1].mod_revision, now.remaining), (revisions[50], 1));
}
