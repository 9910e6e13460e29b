//! Sound, damaged and hostile files of etcd.

mod build;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{FileError, Meter, read_in, seen::MAX_KEYS};
use crate::bolt::BoltError;
use build::{PAGE, Write, database, snapshot};

type Found = BTreeMap<String, usize>;
/// Writes as in [`Write`].
type History = Vec<(u64, u64, String, Option<Vec<u8>>)>;

fn read(file: Vec<u8>, max_keys: usize) -> Result<(u64, Found), FileError> {
    let mut found = Found::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        let twice = found.insert(String::from_utf8_lossy(key).into_owned(), value.len());
        assert_eq!(twice, None, "visited twice");
    };
    let revision = read_in(&file, &Meter::default(), max_keys, visit)?;
    Ok((revision, found))
}

fn put(main: u64, key: &str, length: usize) -> Write<'_> {
    (main, 0, key, Some(vec![b'x'; length]))
}

fn found(entries: &[(&str, usize)]) -> Found {
    entries.iter().map(|(key, length)| ((*key).to_owned(), *length)).collect()
}

/// Some hundred writes of some dozen keys, with deletions, transactions and large values.
fn history(seed: u64, writes: usize, keys: usize) -> (History, Found) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut all, mut live) = (Vec::new(), Found::new());
    let (mut main, mut sub) = (1, 0);
    for _ in 0..writes {
        (main, sub) = if main > 1 && random.u8(..10) == 0 { (main, sub + 1) } else { (main + 1, 0) };
        let key = format!("/registry/configmaps/default/c-{:04}", random.usize(..keys));
        let value = match random.u8(..20) {
            0 | 1 if live.contains_key(&key) => None,
            2 => Some(vec![1; random.usize(..20_000)]),
            _ => Some(vec![2; random.usize(..600)]),
        };
        match &value {
            Some(value) => live.insert(key.clone(), value.len()),
            None => live.remove(&key),
        };
        all.push((main, sub, key, value));
    }
    (all, live)
}

fn built(history: &History, compacted: u64) -> Vec<u8> {
    let writes: Vec<Write<'_>> =
        history.iter().map(|(main, sub, key, value)| (*main, *sub, key.as_str(), value.clone())).collect();
    database(&writes, compacted)
}

#[test]
fn the_last_write_of_each_key_counts_unless_it_is_a_deletion() {
    let writes = [
        put(2, "a", 1),
        put(3, "b", 2),
        put(4, "a", 3),
        (5, 0, "b", None),
        put(6, "c", 0),
        put(7, "d", 9000),
    ];
    let file = database(&writes, 0);
    assert_eq!(read(file.clone(), MAX_KEYS).unwrap(), (7, found(&[("a", 3), ("c", 0), ("d", 9000)])));
    assert_eq!(read(snapshot(file), MAX_KEYS).unwrap().0, 7, "with its hash");
    assert_eq!(read(database(&[], 0), MAX_KEYS).unwrap(), (0, Found::new()), "an empty one");
    // Only the values that were live at revision 6 are left of all that came before.
    let compacted = [put(4, "a", 3), put(7, "d", 1)];
    assert_eq!(read(database(&compacted, 6), MAX_KEYS).unwrap(), (7, found(&[("a", 3), ("d", 1)])));
    assert_eq!(read(database(&[put(4, "a", 3)], 6), MAX_KEYS).unwrap(), (6, found(&[("a", 3)])));
}

#[test]
fn a_missing_write_is_noticed() {
    for (writes, compacted, missing) in [
        (&[put(2, "a", 1), put(4, "b", 1)][..], 0, 3),
        (&[put(3, "a", 1)], 0, 2),
        (&[put(2, "a", 1), put(9, "b", 1)], 7, 8),
        (&[put(2, "a", 1), (3, 1, "b", Some(vec![]))], 0, 3),
        (&[put(2, "a", 1), put(3, "a", 1), (3, 2, "b", Some(vec![]))], 0, 3),
    ] {
        let error = read(database(writes, compacted), MAX_KEYS).unwrap_err();
        assert!(matches!(error, FileError::Gap { missing: found, .. } if found == missing), "{error}");
    }
}

#[test]
fn more_keys_than_can_be_remembered_take_more_passes() {
    let (history, live) = history(7, 500, 150);
    let file = built(&history, 0);
    for max_keys in [1, 10, 40, 149, MAX_KEYS] {
        assert_eq!(read(file.clone(), max_keys).unwrap().1, live, "{max_keys}");
    }
}

#[test]
fn every_change_and_every_cut_of_a_snapshot_is_noticed() {
    let (history, live) = history(3, 120, 40);
    let sound = snapshot(built(&history, 0));
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..3000 {
        let mut file = sound.clone();
        let at = random.usize(..file.len());
        file[at] ^= 1 << random.u8(..8);
        assert!(read(file, MAX_KEYS).is_err(), "byte {at}");
    }
    let without_hash = sound.len() - 32;
    for length in (0..sound.len()).step_by(97).chain([without_hash, without_hash - PAGE]) {
        match read(sound[..length].to_vec(), MAX_KEYS) {
            // Exactly the hash is missing: then it is a database, with all that it had.
            Ok((_, found)) => assert_eq!((length, &found), (without_hash, &live)),
            Err(_) => assert_ne!(length, without_hash),
        }
    }
}

#[test]
fn a_changed_byte_of_a_database_never_changes_how_many_keys_are_found() {
    let (history, live) = history(5, 150, 40);
    let sound = built(&history, 0);
    let mut random = fastrand::Rng::with_seed(12);
    let (mut refused, mut same, mut renamed) = (0, 0, 0);
    for _ in 0..6000 {
        let mut file = sound.clone();
        let at = random.usize(..file.len());
        let old = file[at];
        file[at] ^= 1 << random.u8(..8);
        match read(file, MAX_KEYS) {
            Err(_) => refused += 1,
            Ok((_, found)) if found.keys().eq(live.keys()) => same += 1,
            // Nothing guards the name of a key that was written once.
            Ok((_, found)) => {
                let strange = found.keys().filter(|key| !live.contains_key(*key)).count();
                assert!(found.len() == live.len() && strange == 1 && old.is_ascii_graphic(), "byte {at}");
                renamed += 1;
            }
        }
    }
    assert!(
        refused > 300 && same > 3000 && renamed < 20,
        "{refused} refused, {same} the same, {renamed} renamed"
    );
    for length in (0..sound.len()).step_by(101).chain([sound.len() - PAGE, sound.len() - 1]) {
        assert!(read(sound[..length].to_vec(), MAX_KEYS).is_err(), "cut to {length}");
    }
}

#[test]
fn damage_is_named() {
    let (history, _) = history(9, 200, 50);
    let sound = built(&history, 0);
    let le = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let root = usize::try_from(le(&sound, PAGE + 32)).unwrap() * PAGE;
    // The first element of the root is the bucket of keys: its value follows its key.
    let keys = usize::try_from(le(&sound, root + 16 + 32 + 3)).unwrap() * PAGE;
    assert_eq!(sound[keys + 8], 1, "a branch");
    let change = |at: usize, to: &[u8]| {
        let mut file = sound.clone();
        file[at..at + to.len()].copy_from_slice(to);
        read(file, MAX_KEYS).unwrap_err().to_string()
    };
    for (at, to, expected) in [
        (0, &b"x"[..], "its meta page 0 is damaged: it has the header of another page"),
        (16, b"x", "it is not a database of etcd"),
        (PAGE + 40, b"x", "its meta page 1 is damaged: its checksum does not match"),
        (keys, b"\xff", "has the number of another page"),
        (keys + 8, b"\x10", "it is neither a branch nor a leaf"),
        (keys + 10, b"\0\0", "it is empty"),
        (keys + 10, b"\xff\xff", "an element is not where it belongs"),
        (keys + 12, b"\xff\xff\xff\xff", "it continues after the end of the database"),
        (keys + 16, b"\0", "an element is not where it belongs"),
        (keys + 24, &(keys as u64 / PAGE as u64).to_le_bytes(), "it is used twice"),
        (keys + 24, &u64::MAX.to_le_bytes(), "there is no such page for data"),
    ] {
        let error = change(at, to);
        assert!(error.contains(expected), "{error}, not {expected}");
    }
}

#[test]
fn an_empty_or_foreign_file_is_refused() {
    for file in [vec![], b"hello".to_vec(), vec![0; 3 * PAGE], vec![b'x'; 8 * PAGE + 32]] {
        let error = read(file, MAX_KEYS).unwrap_err();
        assert!(matches!(error, FileError::Bolt(BoltError::Foreign) | FileError::Hash), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_history_is_read_as_it_was_written(seed: u64, writes in 0usize..400, keys in 1usize..60, max in 1usize..80) {
        let (history, live) = history(seed, writes, keys);
        prop_assert_eq!(read(snapshot(built(&history, 0)), max).unwrap().1, live);
    }

    #[test]
    fn any_bytes_are_read_or_refused(seed: u64, changes in 1usize..200) {
        let (history, _) = history(1, 60, 20);
        let mut file = built(&history, 0);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..changes {
            // The checksums of the meta pages would refuse most of it.
            let at = random.usize(2 * PAGE..file.len());
            file[at] = random.u8(..);
        }
        read(file, MAX_KEYS).ok();
    }
}
