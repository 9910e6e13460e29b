//! A damaged file, or one that is not a store, leads to errors and never to panics or wrong data.

use std::{fs, sync::LazyLock};

use proptest::prelude::*;
use restow_store::{
    Store,
    file::{FileSettings, FileStore, OpenError},
};

use crate::{
    file::open,
    support::{all, done, write},
};

/// The file of a small store.
static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    // In its own thread, because a runtime must not block on another one.
    let make = || {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = open(&dir);
            for number in 0..40 {
                done(&store, &format!("/registry/{number}"), 0, Some(&"x".repeat(500))).await;
            }
        });
        fs::read(dir.path().join("store.redb")).unwrap()
    };
    std::thread::spawn(make).join().unwrap()
});

#[derive(Clone, Debug)]
enum Damage {
    Cut(prop::sample::Index),
    Overwrite(prop::sample::Index, Vec<u8>),
    Zero(prop::sample::Index, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<prop::sample::Index>().prop_map(Damage::Cut),
        (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(at, bytes)| Damage::Overwrite(at, bytes)),
        (any::<prop::sample::Index>(), 1..20_000usize).prop_map(|(at, length)| Damage::Zero(at, length)),
    ]
}

fn damaged(damages: &[Damage]) -> Vec<u8> {
    let mut bytes = SOUND.clone();
    for damage in damages {
        let (at, new) = match damage {
            Damage::Cut(at) => {
                bytes.truncate(at.index(bytes.len() + 1));
                continue;
            }
            Damage::Overwrite(at, new) => (at, new.clone()),
            Damage::Zero(at, length) => (at, vec![0; *length]),
        };
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            let end = bytes.len().min(at + new.len());
            bytes[at..end].copy_from_slice(&new[..end - at]);
        }
    }
    bytes
}

/// Opens a file and uses it if that works.
async fn using(bytes: &[u8]) -> Result<(), OpenError> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("store.redb"), bytes).unwrap();
    let store = FileStore::open(dir.path(), FileSettings::default())?;
    store.get("/registry/7").await.ok();
    store.list(all("/registry/")).await.ok();
    store.watch("/registry/", 1).await.ok();
    let value = Some(bytes::Bytes::from_static(b"new"));
    store.write(restow_store::Write { key: "/registry/7".into(), expected: 9, value }).await.ok();
    store.compact(20).await.ok();
    Ok(())
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_refused() {
    for bytes in [b"hello".to_vec(), vec![0; 4096], vec![7; 1 << 20], SOUND[..SOUND.len() / 2].to_vec()] {
        let error = using(&bytes).await.unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("store.redb"), "{error}");
    }
}

#[tokio::test]
async fn a_database_of_another_program_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let database = redb::Database::create(dir.path().join("store.redb")).unwrap();
    let writing = database.begin_write().unwrap();
    writing.open_table(redb::TableDefinition::<u64, u64>::new("another")).unwrap();
    writing.commit().unwrap();
    drop(database);
    let error = FileStore::open(dir.path(), FileSettings::default()).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
}

#[tokio::test]
async fn an_undamaged_file_can_be_used() {
    using(&SOUND).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("store.redb"), &*SOUND).unwrap();
    let store = open(&dir);
    assert_eq!(store.list(all("/registry/")).await.unwrap().entries.len(), 40);
    write(&store, "/registry/7", 0, None).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_leads_only_to_errors(damages in prop::collection::vec(damage(), 1..4)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(using(&damaged(&damages))).ok();
    }
}
