//! Judges what the controllers write, by reading the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Method;
use restow_clock::Instant;
use restow_store::memory::MemoryStore;
use restow_store::{Change, Entry};
use serde_json::Value;

use crate::keys::key_of;
use crate::oracle::{hash_of, kept};
use crate::plan::{GROUP, Op, Plan, Scene};
use crate::trace::Trace;

/// The key of the CRD in the store.
const DEFINITION: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/boats.sim.example";
/// The prefix of migrations in the store.
pub(crate) const MIGRATIONS: &str = "/registry/migration.k8s.io/storageversionmigrations/";
/// The prefix of StorageStates in the store.
pub(crate) const STATES: &str = "/registry/migration.k8s.io/storagestates/";
/// The key of the controllers' Lease in the store.
const LEASE: &str = "/registry/leases/default/restow";

/// Observes every write of the controllers' objects and every request of the controllers.
#[derive(Clone)]
pub struct Ledger {
    trace: Trace,
    store: MemoryStore,
    scene: Scene,
    /// The prefix of the migrated objects.
    prefix: String,
    page: usize,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// The store's revision when the trigger last started to poll.
    looked: u64,
    /// The store's revision when a migration last started to list.
    listed: u64,
    /// The holder of the Lease.
    leader: String,
    /// The migrations that may run.
    active: BTreeSet<String>,
    /// Objects that were written while no migration may run.
    unwanted: BTreeSet<String>,
    /// What the last successful migration proved, and the CRD at that time.
    proven: Option<(String, Value)>,
    /// The number of created migrations.
    created: usize,
    /// The key of each running API server, and since when.
    keys: BTreeMap<usize, (&'static str, Instant)>,
    /// When the metrics of each API server were last read.
    measured: BTreeMap<usize, Instant>,
}

fn object(entry: &Entry) -> Value {
    serde_json::from_slice(&entry.value).unwrap_or_default()
}

fn texts(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Whether a condition of a migration is True, and its reason.
fn condition(migration: &Value, kind: &str) -> Option<String> {
    let conditions = migration["status"]["conditions"].as_array()?;
    let found =
        conditions.iter().find(|condition| condition["type"] == kind && condition["status"] == "True")?;
    Some(found["reason"].as_str().unwrap_or_default().to_owned())
}

/// Whether a migration has ended.
pub(crate) fn is_finished(migration: &Value) -> bool {
    condition(migration, "Succeeded").is_some() || condition(migration, "Failed").is_some()
}

/// The reason why a migration failed, if it did.
pub(crate) fn failure(migration: &Value) -> Option<String> {
    condition(migration, "Failed")
}

/// The objects that a migration has quarantined.
pub(crate) fn left(migration: &Value) -> Vec<String> {
    let left = migration["status"]["quarantined"].as_array().cloned().unwrap_or_default();
    left.iter().filter_map(|object| object["name"].as_str().map(str::to_owned)).collect()
}

/// Whether a message is about a connection that was refused or cut.
pub(crate) fn is_connection(message: &str) -> bool {
    ["connection refused", "connection reset by peer"].iter().any(|text| message.contains(text))
}

impl Ledger {
    /// A ledger that watches a store.
    pub fn watch(plan: &Plan, trace: &Trace, store: &MemoryStore) -> Self {
        let ledger = Self {
            trace: trace.clone(),
            store: store.clone(),
            scene: plan.scene,
            prefix: plan.scene.prefix(GROUP),
            page: plan.page as usize,
            seen: Arc::default(),
        };
        let witness = ledger.clone();
        store.add_witness(Box::new(move |change| witness.judge(change)));
        ledger
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All objects below a prefix.
    pub(crate) fn below(&self, prefix: &str) -> Vec<Value> {
        self.store.below(prefix).iter().map(object).collect()
    }

    /// The state of the resource.
    pub(crate) fn state(&self) -> Value {
        self.below(STATES)
            .into_iter()
            .find(|state| state["spec"]["resource"]["resource"] == self.scene.plural())
            .unwrap_or_default()
    }

    /// The number of migrations created so far.
    pub(crate) fn created(&self) -> usize {
        self.seen().created
    }

    /// Records the key of an API server; `None` if it does not run.
    pub fn encrypts(&self, server: usize, key: Option<&'static str>) {
        let mut seen = self.seen();
        match key {
            Some(key) => seen.keys.insert(server, (key, Instant::now())),
            None => seen.keys.remove(&server),
        };
    }

    /// Records a request of a replica of the controllers.
    pub fn sent(
        &self,
        replica: &str,
        server: usize,
        method: &Method,
        op: Op,
        name: Option<&str>,
        uri: &http::Uri,
    ) {
        let writes = method != Method::GET;
        let mut seen = self.seen();
        let newest = self.store.newest();
        match op {
            Op::List => seen.listed = newest,
            Op::Metrics => {
                seen.measured.insert(server, Instant::now());
            }
            // The controllers list all StorageVersions only when the trigger polls.
            Op::Look if uri.path().ends_with("/storageversions") && uri.query().is_none() => {
                seen.looked = newest
            }
            _ => {}
        }
        let leader = seen.leader.clone();
        if writes && !matches!(op, Op::Lease | Op::Event) && !leader.is_empty() && leader != replica {
            drop(seen);
            let what = format!("{replica} sends {method} {uri} although {leader} leads");
            return self.trace.violate("S9", what);
        }
        let Some(name) = name.filter(|_| op == Op::Write) else { return };
        if seen.active.is_empty() {
            seen.unwanted.insert(name.to_owned());
            let (unwanted, most) = (seen.unwanted.len(), self.page + 1);
            drop(seen);
            if unwanted > most {
                let what = format!("{unwanted} objects were written after no migration was left to run");
                self.trace.violate("S10", what);
            }
        }
    }

    fn judge(&self, change: &Change) {
        if change.key == LEASE {
            let lease = change.now.as_ref().map(object).unwrap_or_default();
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
            if self.seen().leader != holder {
                self.trace.step(&format!("  the Lease is held by {holder:?}"));
                self.seen().leader = holder;
            }
        } else if change.key.starts_with(MIGRATIONS) {
            self.migration(change);
        } else if change.key.starts_with(STATES) && change.key.contains(self.scene.plural()) {
            self.judge_state(change);
        } else if change.key.starts_with(&self.prefix) {
            self.judge_object(change);
        }
    }

    /// The spec of the CRD.
    fn definition(&self) -> Value {
        self.below(DEFINITION)
            .into_iter()
            .next()
            .map(|definition| definition["spec"].clone())
            .unwrap_or_default()
    }

    /// S2: a migration succeeds only if every object is stored as wanted.
    fn migration(&self, change: &Change) {
        let before = change.before.as_ref().map(object).unwrap_or_default();
        let now = change.now.as_ref().map(object).unwrap_or_default();
        let name = change.key.strip_prefix(MIGRATIONS).unwrap_or_default();
        let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let told: Vec<String> = conditions
            .iter()
            .filter(|condition| condition["status"] == "True")
            .map(|condition| {
                format!("{} {}: {}", condition["type"], condition["reason"], condition["message"])
            })
            .collect();
        let phase =
            if change.now.is_none() { "deleted".to_owned() } else { now["status"]["phase"].to_string() };
        self.trace.step(&format!("  migration {name} {phase} {}", told.join(", ")));
        let active = change.now.is_some()
            && !is_finished(&now)
            && now["spec"]["suspend"] != true
            && now["metadata"]["deletionTimestamp"].is_null();
        {
            let mut seen = self.seen();
            seen.created += usize::from(change.before.is_none());
            if active {
                seen.active.insert(name.to_owned());
                seen.unwanted.clear();
            } else {
                seen.active.remove(name);
            }
        }
        if condition(&now, "Succeeded").is_some() && condition(&before, "Succeeded").is_none() {
            self.succeeded(name, &now);
        }
        // L3: a refused connection does not fail a migration for good.
        let failed = conditions.iter().find(|one| one["type"] == "Failed" && one["status"] == "True");
        let message = failed.and_then(|failed| failed["message"].as_str()).unwrap_or_default();
        if is_connection(message) {
            self.trace.violate("L3", format!("{name} failed: {message}"));
        }
    }

    fn succeeded(&self, name: &str, migration: &Value) {
        let checkpoint = &migration["status"]["checkpoint"];
        let wanted = if self.scene.encrypts() {
            key_of(checkpoint["encryption"].as_str().unwrap_or_default()).map(str::to_owned)
        } else {
            checkpoint["storageVersion"].as_str().map(str::to_owned)
        };
        let Some(wanted) = wanted else {
            return self.trace.violate(
                "S2",
                format!(
                    "{name} succeeded, but its checkpoint does not say for which version or key: {checkpoint}"
                ),
            );
        };
        if self.scene.encrypts() {
            self.agreed(name, &wanted);
        }
        let listed = self.seen().listed;
        for entry in self.store.below(&self.prefix) {
            let kept = kept(&entry);
            if entry.mod_revision <= listed && kept != wanted {
                let what = format!("{name} succeeded for {wanted} while {} is stored as {kept}", entry.key);
                self.trace.violate("S2", what);
            }
        }
        if !self.scene.encrypts() {
            self.seen().proven = Some((wanted, self.definition()));
        }
    }

    /// S6: a migration succeeds for a key only if every API server used it when its metrics were last read.
    fn agreed(&self, name: &str, wanted: &str) {
        let parted: Vec<usize> = {
            let seen = self.seen();
            let other = |(server, (key, since)): (&usize, &(&str, Instant))| {
                let asked_since = seen.measured.get(server).is_some_and(|asked| asked > since);
                (*key != wanted && asked_since).then_some(*server)
            };
            seen.keys.iter().filter_map(other).collect()
        };
        for server in parted {
            let what =
                format!("{name} succeeded for {wanted} while server {server} encrypts with another key");
            self.trace.violate("S6", what);
        }
    }

    /// S1: a StorageState loses a hash only if no object is stored with it any more.
    fn judge_state(&self, change: &Change) {
        let Some(now) = change.now.as_ref().map(object) else {
            return self
                .trace
                .violate("S1", "the StorageState was deleted although the resource is served".to_owned());
        };
        let before = change.before.as_ref().map(object).unwrap_or_default();
        let field = if self.scene.encrypts() {
            "persistedEncryptionConfigHashes"
        } else {
            "persistedStorageVersionHashes"
        };
        let persisted = |state: &Value| texts(&state["status"][field]);
        let (was, is) = (persisted(&before), persisted(&now));
        if was == is {
            return;
        }
        let names: Vec<String> = is.iter().map(|hash| self.name_of(hash)).collect();
        self.trace.step(&format!("  persisted: {}", names.join(" ")));
        if is.contains(restow_api::UNKNOWN) || was.is_subset(&is) {
            return;
        }
        let looked = self.seen().looked;
        for entry in self.store.below(&self.prefix) {
            let kept = kept(&entry);
            // What was stored after the poll is for the next one.
            if entry.mod_revision <= looked && !names.contains(&kept) {
                let what =
                    format!("the state is refined to {names:?} while {} is stored as {kept}", entry.key);
                self.trace.violate("S1", what);
            }
        }
    }

    /// The version or key of a hash.
    fn name_of(&self, hash: &str) -> String {
        if self.scene.encrypts() {
            return key_of(hash).unwrap_or(hash).to_owned();
        }
        let versions = ["v1", "v2"];
        versions.into_iter().find(|version| hash_of(GROUP, version) == hash).unwrap_or(hash).to_owned()
    }

    /// S7: after a proof no object is stored in another version until the CRD changes.
    fn judge_object(&self, change: &Change) {
        let Some(now) = &change.now else { return };
        let proven = self.seen().proven.clone();
        let Some((wanted, definition)) = proven else { return };
        if kept(now) == wanted {
            return;
        }
        if definition == self.definition() {
            let what = format!("{} is stored as {} after all was proven {wanted}", change.key, kept(now));
            self.trace.violate("S7", what);
        } else {
            self.seen().proven = None;
        }
    }

    /// Whether the StorageState shows exactly the wanted version or key.
    pub(crate) fn is_refined(&self, wanted: &str) -> bool {
        let state = self.state();
        let (persisted, current) = if self.scene.encrypts() {
            ("persistedEncryptionConfigHashes", "currentEncryptionConfigHash")
        } else {
            ("persistedStorageVersionHashes", "currentStorageVersionHash")
        };
        let status = &state["status"];
        let only = texts(&status[persisted]);
        only.len() == 1
            && only.iter().all(|hash| self.name_of(hash) == wanted)
            && status[current].as_str().is_some_and(|hash| self.name_of(hash) == wanted)
    }

    /// Whether storedVersions contain only the wanted version.
    pub(crate) fn is_pruned(&self, wanted: &str) -> bool {
        let definition = self.below(DEFINITION).into_iter().next().unwrap_or_default();
        self.scene.encrypts()
            || texts(&definition["status"]["storedVersions"]) == BTreeSet::from([wanted.to_owned()])
    }

    /// All migrations, by name.
    pub(crate) fn migrations(&self) -> BTreeMap<String, Value> {
        let name = |migration: &Value| migration["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.below(MIGRATIONS).into_iter().map(|migration| (name(&migration), migration)).collect()
    }
}
