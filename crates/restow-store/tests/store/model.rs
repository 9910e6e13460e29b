//! The store in a file behaves like a simple model, for random operations.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use restow_store::{Entry, Range, Store, StoreError, Write, Written, file::FileStore};

use crate::{file::open, support::changes_until};

#[derive(Clone, Debug)]
enum Step {
    /// Writes a key, with the right or a wrong mod revision.
    Write { key: usize, known: bool, value: Option<u8> },
    /// Lists at an older revision.
    List { prefix: usize, back: u64, limit: usize, start: Option<usize> },
    /// Reads a list page by page.
    Pages { prefix: usize, limit: usize },
    /// Compacts to an older revision.
    Compact { back: u64 },
    /// Watches from an older revision.
    Watch { prefix: usize, back: u64 },
    /// Closes and reopens the store.
    Reopen,
}

const KEYS: [&str; 7] = ["/a", "/a/", "/a/b", "/a/c", "/b/a", "/b/b/c", "/c"];
const PREFIXES: [&str; 6] = ["/", "/a", "/a/", "/b/", "/b/b/", ""];

fn step() -> impl Strategy<Value = Step> {
    let write = (0..KEYS.len(), prop::bool::weighted(0.8), prop::option::weighted(0.7, any::<u8>()))
        .prop_map(|(key, known, value)| Step::Write { key, known, value });
    let list = (0..PREFIXES.len(), 0..12u64, 0..4usize, prop::option::of(0..KEYS.len()))
        .prop_map(|(prefix, back, limit, start)| Step::List { prefix, back, limit, start });
    let pages = (0..PREFIXES.len(), 1..3usize).prop_map(|(prefix, limit)| Step::Pages { prefix, limit });
    let watch = (0..PREFIXES.len(), 0..12u64).prop_map(|(prefix, back)| Step::Watch { prefix, back });
    prop_oneof![
        10 => write,
        4 => list,
        1 => pages,
        1 => (0..12u64).prop_map(|back| Step::Compact { back }),
        2 => watch,
        1 => Just(Step::Reopen),
    ]
}

/// All states of the store, by revision.
struct Model {
    states: Vec<BTreeMap<String, Entry>>,
    compacted: u64,
}

impl Model {
    fn newest(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    fn now(&self) -> &BTreeMap<String, Entry> {
        self.states.last().unwrap()
    }

    fn write(&mut self, write: &Write) -> Written {
        let current = self.now().get(&write.key).cloned();
        let found = current.as_ref().map_or(0, |entry| entry.mod_revision);
        if found != write.expected || (current.is_none() && write.value.is_none()) {
            return Written::Conflict { current };
        }
        let revision = self.newest() + 1;
        let mut next = self.now().clone();
        match &write.value {
            None => next.remove(&write.key),
            Some(value) => {
                let create_revision = current.map_or(revision, |entry| entry.create_revision);
                let (key, value) = (write.key.clone(), value.clone());
                next.insert(key.clone(), Entry { key, value, create_revision, mod_revision: revision })
            }
        };
        self.states.push(next);
        Written::Done { revision }
    }

    fn list(&self, range: &Range) -> Result<(Vec<Entry>, u64), StoreError> {
        let asked = range.revision.unwrap_or(self.newest());
        if asked < self.compacted {
            return Err(StoreError::Compacted { asked, oldest: self.compacted });
        }
        let start = range.start.clone().unwrap_or_default();
        let entries = self.states[asked as usize].values();
        let fits = |entry: &&Entry| entry.key.starts_with(&range.prefix) && entry.key >= start;
        let mut entries: Vec<Entry> = entries.filter(fits).cloned().collect();
        let shown = if range.limit == 0 { entries.len() } else { range.limit.min(entries.len()) };
        let remaining = (entries.len() - shown) as u64;
        entries.truncate(shown);
        Ok((entries, remaining))
    }
}

async fn compare(steps: Vec<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    // Revision 0 does not exist, revision 1 is the empty store.
    let mut model = Model { states: vec![BTreeMap::new(); 2], compacted: 0 };
    for step in steps {
        let back = |back: u64| model.newest().saturating_sub(back).max(1);
        match step {
            Step::Write { key, known, value } => {
                let found = model.now().get(KEYS[key]).map_or(0, |entry| entry.mod_revision);
                let expected = if known { found } else { found + 1 };
                let value = value.map(|byte| Bytes::from(vec![byte; usize::from(byte) * 40]));
                let write = Write { key: KEYS[key].into(), expected, value };
                assert_eq!(store.write(write.clone()).await.unwrap(), model.write(&write));
                let got = store.get(KEYS[key]).await.unwrap();
                assert_eq!(got.entry.as_ref(), model.now().get(KEYS[key]));
                assert_eq!(got.revision, model.newest());
            }
            Step::List { prefix, back: ago, limit, start } => {
                let start = start.map(|key| KEYS[key].into());
                let revision = Some(back(ago));
                let range = Range { prefix: PREFIXES[prefix].into(), start, limit, revision };
                let listed = store.list(range.clone()).await;
                let expected = model.list(&range);
                assert_eq!(listed.map(|listed| (listed.entries, listed.remaining)), expected, "{range:?}");
            }
            Step::Pages { prefix, limit } => pages(&store, &model, PREFIXES[prefix], limit).await,
            Step::Compact { back: ago } => {
                let revision = back(ago);
                store.compact(revision).await.unwrap();
                model.compacted = model.compacted.max(revision);
            }
            Step::Watch { prefix, back: ago } => watch(&store, &model, PREFIXES[prefix], back(ago)).await,
            Step::Reopen => {
                drop(store);
                store = open(&dir);
            }
        }
    }
}

async fn pages(store: &FileStore, model: &Model, prefix: &str, limit: usize) {
    let mut range = Range { prefix: prefix.into(), start: None, limit, revision: None };
    loop {
        let listed = store.list(range.clone()).await.unwrap();
        assert_eq!((listed.entries.clone(), listed.remaining), model.list(&range).unwrap(), "{range:?}");
        if listed.remaining == 0 {
            return;
        }
        range.start = listed.entries.last().map(|entry| format!("{}\0", entry.key));
        range.revision = Some(listed.revision);
    }
}

async fn watch(store: &FileStore, model: &Model, prefix: &str, after: u64) {
    let mut watch = match store.watch(prefix, after).await {
        Ok(watch) => watch,
        Err(error) => {
            assert_eq!(error, StoreError::Compacted { asked: after, oldest: model.compacted });
            assert!(after < model.compacted);
            return;
        }
    };
    let changes = changes_until(&mut watch, if after < model.newest() { model.newest() } else { 0 }).await;
    let mut told = changes.into_iter();
    for revision in after + 1..=model.newest() {
        let (before, now) = (&model.states[revision as usize - 1], &model.states[revision as usize]);
        let keys = before.keys().chain(now.keys());
        let key = keys.into_iter().find(|key| before.get(*key) != now.get(*key)).unwrap();
        if key.starts_with(prefix) {
            let change = told.next().unwrap();
            assert_eq!((&change.key, change.revision), (key, revision));
            assert_eq!((change.before.as_ref(), change.now.as_ref()), (before.get(key), now.get(key)));
        }
    }
    assert_eq!(told.next(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_behaves_like_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(compare(steps));
    }
}
