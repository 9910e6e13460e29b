//! The store on a disk that fails temporarily.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    io,
    ops::Bound,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt as _;
use redb::{BackendError, Database, StorageBackend, backends::FileBackend};

use super::{FileStore, Keep, open::FILE};
use crate::{Range, Store as _, StoreError, Write, Written};

/// A block of a disk, in bytes.
const BLOCK: u64 = 4096;

/// How long anything may take before a test gives up.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// What is wrong with a disk.
#[derive(Debug, Default)]
struct Faults {
    /// The disk is full: only blocks that were written before can be written.
    is_full: AtomicBool,
    /// Nothing can be written.
    is_dead: AtomicBool,
    written: Mutex<HashSet<u64>>,
}

/// A file on a disk that may fail.
#[derive(Debug)]
struct Disk {
    file: FileBackend,
    faults: Arc<Faults>,
}

impl Disk {
    fn alive(&self) -> io::Result<()> {
        match self.faults.is_dead.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::Other.into()),
            false => Ok(()),
        }
    }

    fn take_blocks(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.faults.written.lock().unwrap();
        for block in offset / BLOCK..(offset + data.len() as u64).div_ceil(BLOCK) {
            if !written.contains(&block) {
                if self.faults.is_full.load(Ordering::SeqCst) {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                written.insert(block);
            }
        }
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.alive()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.alive()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.alive()?;
        self.take_blocks(offset, data)?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

fn open(dir: &Path, faults: &Arc<Faults>) -> FileStore {
    let (file, faults) = (dir.join(FILE), Arc::clone(faults));
    let opener = {
        let file = file.clone();
        Box::new(move |_| {
            let opened: File =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file)?;
            let disk = Disk { file: FileBackend::new(opened)?, faults: Arc::clone(&faults) };
            Database::builder().create_with_backend(disk)
        })
    };
    FileStore::open_file(dir, &file, Keep::default(), opener).unwrap()
}

async fn write(store: &FileStore, key: &str) -> Result<u64, StoreError> {
    let write = Write { key: key.to_owned(), expected: 0, value: Some(Bytes::from(vec![7; 200_000])) };
    match store.write(write).await? {
        Written::Done { revision } => Ok(revision),
        Written::Conflict { current } => panic!("{current:?}"),
    }
}

async fn keys(store: &FileStore) -> Result<Vec<String>, StoreError> {
    let range = Range { prefix: "/".to_owned(), start: None, limit: 0, revision: None };
    Ok(store.list(range).await?.entries.into_iter().map(|entry| entry.key).collect())
}

/// Repeats a write until it succeeds.
async fn until<T>(mut work: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    let trying = async {
        loop {
            match work().await {
                Ok(done) => return done,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, trying).await.expect("it works again")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_only_writes_fail_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let store = open(dir.path(), &faults);
    let first = write(&store, "/a").await.unwrap();
    let mut watch = store.watch("/", first).await.unwrap();
    store.check().await.unwrap();

    faults.is_full.store(true, Ordering::SeqCst);
    for key in ["/b", "/c"] {
        let error = write(&store, key).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(store.check().await.is_err(), "a store that cannot write says so");
    }
    assert_eq!(until(async || keys(&store).await).await, ["/a"], "what is there can be read");

    faults.is_full.store(false, Ordering::SeqCst);
    // The check recovers without a write.
    until(async || store.check().await).await;
    let second = write(&store, "/d").await.unwrap();
    assert!(second > first);
    assert_eq!(keys(&store).await.unwrap(), ["/a", "/d"]);
    let told = tokio::time::timeout(TEST_TIMEOUT, watch.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(told.changes.iter().map(|change| change.key.as_str()).collect::<Vec<_>>(), ["/d"]);

    drop((watch, store));
    assert_eq!(keys(&open(dir.path(), &faults)).await.unwrap(), ["/a", "/d"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_recovers_when_its_disk_does() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let store = open(dir.path(), &faults);
    write(&store, "/a").await.unwrap();
    faults.is_dead.store(true, Ordering::SeqCst);
    let error = write(&store, "/b").await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert!(store.check().await.is_err());
    faults.is_dead.store(false, Ordering::SeqCst);
    until(async || store.check().await).await;
    assert_eq!(keys(&store).await.unwrap(), ["/a"]);
    write(&store, "/b").await.unwrap();
    assert_eq!(keys(&store).await.unwrap(), ["/a", "/b"]);
}

#[test]
fn a_copy_of_the_file_has_another_instance() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |dir: &Path| FileStore::open(dir, super::FileSettings::default()).unwrap();
    let first = open(dir.path()).instance();
    std::fs::copy(dir.path().join(FILE), copy.path().join(FILE)).unwrap();
    assert!(first.is_some());
    assert_ne!(open(copy.path()).instance(), first);
    assert_eq!(open(dir.path()).instance(), first);
}
