//! Acknowledged writes are stored after `kill -9`.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write as _},
    process::{Command, Stdio},
    sync::Arc,
};

use bytes::Bytes;
use restow_store::{Store, Write, Written};
use tempfile::TempDir;

use crate::{
    file::open,
    support::{all, changes_until},
};

/// The environment variable with the data directory of the process that is killed.
const DIR: &str = "RESTOW_STORE_CRASH_DIR";

const WRITERS: usize = 12;
const ROUNDS: usize = 6;

/// A value that shows whether it is complete.
fn value(number: u64) -> Bytes {
    number.to_be_bytes().repeat(200).into()
}

fn number(value: &[u8]) -> u64 {
    let numbers: Vec<u64> =
        value.chunks(8).map(|chunk| u64::from_be_bytes(chunk.try_into().expect("a whole number"))).collect();
    assert_eq!(numbers.len(), 200);
    assert!(numbers.iter().all(|number| *number == numbers[0]), "of two writes: {numbers:?}");
    numbers[0]
}

/// Runs in the process that is killed: writes forever, and prints every answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_until_it_is_killed() {
    let Some(dir) = env::var_os(DIR) else { return };
    let store =
        restow_store::file::FileStore::open(dir.as_ref(), restow_store::file::FileSettings::default())
            .unwrap();
    let store = Arc::new(store);
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write_on(store.clone(), writer))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

async fn write_on(store: Arc<dyn Store>, writer: usize) {
    let key = format!("/registry/{writer}");
    let entry = store.get(&key).await.unwrap().entry;
    let mut written = entry.as_ref().map_or(0, |entry| number(&entry.value));
    let mut expected = entry.map_or(0, |entry| entry.mod_revision);
    loop {
        written += 1;
        let write = Write { key: key.clone(), expected, value: Some(value(written)) };
        let Written::Done { revision } = store.write(write).await.unwrap() else {
            panic!("nobody else writes")
        };
        expected = revision;
        let line = format!("answered {key} {written} {revision}\n");
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    }
}

/// Runs the writers until they got this many answers, kills them, and returns the answers.
fn killed(dir: &TempDir, answers: usize) -> BTreeMap<String, (u64, u64)> {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "crash::writes_until_it_is_killed", "--nocapture"])
        .env(DIR, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answered = BTreeMap::new();
    let mut seen = 0;
    // Lines in the pipe after the kill are answers too, except an incomplete one.
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while lines.read_line(&mut line).unwrap() > 0 {
        if let Some(answer) = line.strip_suffix('\n').and_then(|line| line.strip_prefix("answered ")) {
            let words: Vec<&str> = answer.split(' ').collect();
            answered.insert(words[0].to_owned(), (words[1].parse().unwrap(), words[2].parse().unwrap()));
            seen += 1;
            if seen == answers {
                child.kill().unwrap();
            }
        }
        line.clear();
    }
    child.wait().unwrap();
    assert!(seen >= answers, "it ended by itself");
    answered
}

#[tokio::test]
async fn acknowledged_writes_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..ROUNDS {
        let answered = killed(&dir, fastrand::usize(1..400));
        let store = open(&dir);
        let newest = store.revision().await.unwrap();
        for (key, (written, revision)) in &answered {
            let entry = store.get(key).await.unwrap().entry.expect("what was answered");
            assert!(entry.mod_revision >= *revision && revision <= &newest, "{key}: {entry:?}");
            assert!(number(&entry.value) >= *written, "{key} lost a write");
        }
        // Every write is complete: its revision, key and count match.
        let mut watch = store.watch("", 1).await.unwrap();
        let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
        for (change, revision) in changes_until(&mut watch, newest).await.into_iter().zip(2..) {
            let now = change.now.unwrap();
            assert_eq!((change.revision, now.mod_revision), (revision, revision));
            let before = numbers.insert(change.key, number(&now.value)).unwrap_or(0);
            assert_eq!(number(&now.value), before + 1);
        }
        let listed = store.list(all("/registry/")).await.unwrap();
        let listed: BTreeMap<_, _> =
            listed.entries.into_iter().map(|entry| (entry.key, number(&entry.value))).collect();
        assert_eq!(listed, numbers);
    }
}
