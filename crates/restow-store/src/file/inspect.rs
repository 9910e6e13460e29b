//! Reads the file of a store that no process has open, without changing it.

use std::{
    fs::{self, File, TryLockError},
    path::Path,
};

use redb::Database;

use super::{
    errors::{damaged, failed, guarded},
    open::{FILE, OpenError, refused},
    overlay::Overlay,
    read::Snapshot,
    tables::{FORMAT, META, Record, THIS_FORMAT},
};
use crate::StoreError;

/// The size of the cache in bytes.
const CACHE: usize = 16 << 20;

/// Visits every key and value of the store in a directory, in the order of keys, and returns its newest revision.
///
/// The file is checked as a whole first. What a crash has left is repaired in memory only.
pub fn inspect(dir: &Path, visit: &mut dyn FnMut(&str, &[u8])) -> Result<u64, OpenError> {
    let path = dir.join(FILE);
    let io = |source| OpenError::Io { path: path.clone(), source };
    let file = File::open(&path).map_err(io)?;
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    let is_damaged = |error: StoreError| OpenError::Damaged { file: path.clone(), reason: error.to_string() };
    // The database would make a new store of an empty file.
    if fs::metadata(&path).map_err(io)?.len() == 0 {
        return Err(is_damaged(damaged("it is empty")));
    }
    let overlay = Overlay::new(file).map_err(io)?;
    let open = || Ok(Database::builder().set_cache_size(CACHE).create_with_backend(overlay));
    let mut database = guarded(open).map_err(is_damaged)?.map_err(|error| refused(error, dir, &path))?;
    guarded(|| check(&mut database)).map_err(is_damaged)?;
    match guarded(|| format(&database)).map_err(is_damaged)? {
        THIS_FORMAT => guarded(|| read(&database, visit)).map_err(is_damaged),
        found => Err(OpenError::Format { file: path, found }),
    }
}

/// Fails if a page does not have its checksum: the database would go on with what it had before.
fn check(database: &mut Database) -> Result<(), StoreError> {
    match database.check_integrity().map_err(failed)? {
        true => Ok(()),
        false => Err(damaged("a checksum does not match")),
    }
}

fn format(database: &Database) -> Result<u64, StoreError> {
    use redb::ReadableDatabase as _;
    let reading = database.begin_read().map_err(failed)?;
    let meta = reading.open_table(META).map_err(failed)?;
    let format = meta.get(FORMAT).map_err(failed)?.map(|number| number.value());
    format.ok_or_else(|| damaged("it was written by another program"))
}

fn read(database: &Database, visit: &mut dyn FnMut(&str, &[u8])) -> Result<u64, StoreError> {
    let snapshot = Snapshot::take(database)?;
    for version in snapshot.live("", "", snapshot.newest)? {
        let bytes = snapshot.log.get(version?.revision).map_err(failed)?;
        let bytes = bytes.ok_or_else(|| damaged("the log lacks a revision that the index has"))?;
        let record = Record::decode(bytes.value())?;
        visit(record.key, record.value);
    }
    Ok(snapshot.newest)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::Path};

    use super::{FILE, OpenError, inspect};
    use crate::{
        Store as _, Write, Written,
        file::{FileSettings, FileStore},
    };

    type Found = BTreeMap<String, Vec<u8>>;

    fn read(dir: &Path) -> Result<(u64, Found), OpenError> {
        let mut found = Found::new();
        let revision = inspect(dir, &mut |key, value| {
            found.insert(key.to_owned(), value.to_vec());
        })?;
        Ok((revision, found))
    }

    async fn write(store: &FileStore, key: &str, expected: u64, value: Option<&'static str>) -> u64 {
        let write = Write { key: key.to_owned(), expected, value: value.map(Into::into) };
        match store.write(write).await.unwrap() {
            Written::Done { revision } => revision,
            conflict => panic!("{conflict:?}"),
        }
    }

    #[tokio::test]
    async fn a_file_is_read_without_changing_it_even_after_a_crash() {
        let (dir, crashed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = FileStore::open(dir.path(), FileSettings::default()).unwrap();
        let first = write(&store, "/a", 0, Some("1")).await;
        let second = write(&store, "/b", 0, Some("2")).await;
        write(&store, "/a", first, Some("3")).await;
        write(&store, "/c", 0, Some("4")).await;
        let last = write(&store, "/b", second, None).await;
        assert!(matches!(read(dir.path()), Err(OpenError::InUse { .. })));
        // As the file is now, a crash would leave it.
        fs::copy(dir.path().join(FILE), crashed.path().join(FILE)).unwrap();
        drop(store);
        let expected = Found::from([("/a".to_owned(), b"3".to_vec()), ("/c".to_owned(), b"4".to_vec())]);
        for dir in [dir.path(), crashed.path()] {
            let before = fs::read(dir.join(FILE)).unwrap();
            assert_eq!(read(dir).unwrap(), (last, expected.clone()));
            assert!(before == fs::read(dir.join(FILE)).unwrap());
        }
    }

    #[tokio::test]
    async fn damage_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read(dir.path()), Err(OpenError::Io { .. })), "there is no file");
        fs::write(dir.path().join(FILE), b"").unwrap();
        assert!(matches!(read(dir.path()), Err(OpenError::Damaged { .. })), "it is empty");
        fs::remove_file(dir.path().join(FILE)).unwrap();
        let store = FileStore::open(dir.path(), FileSettings::default()).unwrap();
        write(&store, "/registry/a", 0, Some("a value that is looked for")).await;
        drop(store);
        let mut file = fs::read(dir.path().join(FILE)).unwrap();
        let looked_for = b"a value that is looked for";
        let at = file.windows(looked_for.len()).position(|some| some == looked_for).unwrap();
        file[at] ^= 1;
        fs::write(dir.path().join(FILE), &file).unwrap();
        assert!(matches!(read(dir.path()), Err(OpenError::Damaged { .. })));
    }
}
