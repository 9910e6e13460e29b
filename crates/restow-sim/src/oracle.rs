//! Judges what is stored, and nothing that restow says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_store::{Change, Entry};
use serde_json::Value;

use crate::plan::Scene;
use crate::trace::Trace;

/// The storage version hash of a version.
pub fn hash_of(group: &str, version: &str) -> String {
    storage_version_hash(&GroupVersion::new(group, version), "Boat")
}

/// The StorageVersions of custom resources in the store.
const REGISTRATIONS: &str = "/registry/storageversions/sim.example";
/// The identity Leases of API servers in the store.
const IDENTITIES: &str = "/registry/leases/kube-system/";

/// Reads every write.
#[derive(Clone)]
pub struct Oracle {
    trace: Trace,
    scene: Scene,
    /// Where objects are stored.
    prefix: String,
    /// The key of the definition.
    definition: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The revision of the last write that was read.
    revision: u64,
    /// The objects and the definition, as they are stored.
    stored: BTreeMap<String, Entry>,
    /// The uids of objects that were deleted.
    deleted: BTreeSet<String>,
    /// The revision of the last write that restow made, and of which object.
    rewritten: (u64, String),
}

/// How the bytes of an object are kept: its version, or what it is encrypted with.
pub fn kept(entry: &Entry) -> String {
    if let Some(sealed) = entry.value.strip_prefix(b"k8s:enc:") {
        let name = sealed.splitn(4, |byte| *byte == b':').nth(2).unwrap_or_default();
        return String::from_utf8_lossy(name).into_owned();
    }
    object(entry)["apiVersion"]
        .as_str()
        .unwrap_or("unreadable")
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn object(entry: &Entry) -> Value {
    serde_json::from_slice(&entry.value).unwrap_or_default()
}

impl Oracle {
    /// An oracle for a store that holds nothing of the scene yet, and that is to be told of every write from now on.
    pub fn new(scene: Scene, group: &str, trace: &Trace) -> Self {
        Self {
            trace: trace.clone(),
            scene,
            prefix: scene.prefix(group),
            definition: format!("/registry/apiextensions.k8s.io/customresourcedefinitions/boats.{group}"),
            state: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a write; writes are to come in the order of their revisions.
    pub fn judge(&self, change: &Change) {
        let is_object = change.key.starts_with(&self.prefix);
        let is_definition = change.key == self.definition;
        let mut state = self.state();
        state.revision = change.revision;
        if is_object || is_definition || change.key.starts_with(IDENTITIES) {
            match &change.now {
                Some(entry) => state.stored.insert(change.key.clone(), entry.clone()),
                None => state.stored.remove(&change.key),
            };
        }
        drop(state);
        if is_object || is_definition || change.key.starts_with(REGISTRATIONS) {
            let how = change.now.as_ref().map_or_else(|| "deleted".to_owned(), kept);
            self.trace.step(&format!("  store {} {} {how}", change.revision, change.key));
        }
        if change.key.starts_with(REGISTRATIONS) {
            self.registration(change);
        } else if is_definition {
            self.definition(change);
        } else if is_object && !self.scene.encrypts() {
            self.object(change);
        }
    }

    /// The revision of the last write that was read.
    pub fn revision(&self) -> u64 {
        self.state().revision
    }

    /// The version that the definition stores.
    pub fn stored_version(&self) -> Option<String> {
        let definition = object(self.state().stored.get(&self.definition)?);
        let stored = definition["spec"]["versions"].as_array()?.iter().find(|one| one["storage"] == true)?;
        stored["name"].as_str().map(str::to_owned)
    }

    /// The versions that objects may be stored in, as the definition's status says.
    fn stored_versions(&self) -> Option<BTreeSet<String>> {
        self.state().stored.get(&self.definition).map(stored_versions)
    }

    /// All objects that are stored.
    fn objects(&self) -> Vec<Entry> {
        let state = self.state();
        state.stored.values().filter(|entry| entry.key.starts_with(&self.prefix)).cloned().collect()
    }

    /// S8: an API server's entry stays in a StorageVersion while its identity Lease stands.
    fn registration(&self, change: &Change) {
        let (Some(before), Some(now)) = (&change.before, &change.now) else { return };
        for dropped in registered(before).difference(&registered(now)) {
            let lease = self.state().stored.get(&format!("{IDENTITIES}{dropped}")).map(object);
            if lease.is_some_and(|lease| stands(&lease)) {
                let what = format!("{} lost the entry of {dropped}, which is alive", change.key);
                self.trace.violate("S8", what);
            }
        }
    }

    /// S1: a version leaves storedVersions only when nothing is stored in it.
    fn definition(&self, change: &Change) {
        let (Some(before), Some(now)) = (&change.before, &change.now) else { return };
        for dropped in stored_versions(before).difference(&stored_versions(now)) {
            for entry in self.objects() {
                if kept(&entry) == *dropped {
                    let what = format!("{dropped} was pruned while {} is stored in it", entry.key);
                    self.trace.violate("S1", what);
                }
            }
        }
    }

    /// S3, S4 and S5: users alone create, change and delete. S1: nothing is stored in a version that was pruned.
    fn object(&self, change: &Change) {
        let number = |object: &Value| object["spec"]["n"].as_u64();
        let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let before = change.before.as_ref().map(object);
        let now = change.now.as_ref().map(object);
        let key = &change.key;
        if let (Some(entry), Some(listed)) = (&change.now, self.stored_versions())
            && !Scene::CONTROLLERS.contains(&self.scene)
            && !listed.contains(&kept(entry))
        {
            self.trace.violate("S1", format!("{key} is stored as {}, which was pruned before", kept(entry)));
        }
        match (before, now) {
            (None, Some(now)) => {
                let deleted = self.state().deleted.contains(&uid(&now));
                if number(&now).is_none() || deleted {
                    self.trace.violate("S3", format!("{key} is back, and no user has created it"));
                }
            }
            (Some(before), None) => {
                self.state().deleted.insert(uid(&before));
            }
            (Some(before), Some(now)) if number(&before) == number(&now) => {
                self.state().rewritten = (change.revision, key.clone());
                if owners(&before) != owners(&now) {
                    self.trace.violate("S5", format!("{key} has other field owners"));
                }
                if meaning(before) != meaning(now) {
                    self.trace.violate("S5", format!("{key} has another content"));
                }
            }
            (Some(before), Some(now)) if number(&now) < number(&before) => {
                self.trace.violate("S4", format!("{key} lost a user's write"));
            }
            _ => {}
        }
    }

    /// S2: a run is verified only when it is known how objects are to be kept, and when every object that was there at
    /// the run's last look, when the store was at a revision, is kept so.
    pub fn verified(&self, wanted: Option<&str>, looked: u64) {
        let Some(wanted) = wanted else {
            let what = "verified although nobody knows what the servers encrypt with".to_owned();
            return self.trace.violate("S2", what);
        };
        for entry in self.objects() {
            let kept = kept(&entry);
            if entry.mod_revision <= looked && kept != wanted {
                let key = &entry.key;
                self.trace.violate("S2", format!("verified for {wanted} while {key} is stored as {kept}"));
            }
        }
    }

    /// S2: a pass that began when the store was at this revision proves something only if it wrote nothing.
    pub fn proven_by_a_pass(&self, began: u64) {
        let (revision, key) = self.state().rewritten.clone();
        if revision > began {
            self.trace.violate("S2", format!("verified by a pass that has rewritten {key}"));
        }
    }

    /// The names of objects that are not kept as wanted.
    pub fn stale(&self, wanted: &str) -> Vec<String> {
        let stale = self.objects().into_iter().filter(|entry| kept(entry) != wanted);
        let name = |entry: Entry| match object(&entry)["metadata"]["name"].as_str() {
            Some(name) => Some(name.to_owned()),
            None => Some(entry.key.rsplit('/').next()?.to_owned()),
        };
        stale.filter_map(name).collect()
    }
}

/// The API servers that have registered in a StorageVersion.
fn registered(storage_version: &Entry) -> BTreeSet<String> {
    let entries =
        object(storage_version)["status"]["storageVersions"].as_array().cloned().unwrap_or_default();
    entries.iter().filter_map(|entry| entry["apiServerID"].as_str().map(str::to_owned)).collect()
}

/// Whether a Lease has not run out.
fn stands(lease: &Value) -> bool {
    let renewed = lease["spec"]["renewTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let seconds = lease["spec"]["leaseDurationSeconds"].as_i64().map(SignedDuration::from_secs);
    let (Some(renewed), Some(seconds)) = (renewed, seconds) else { return false };
    restow_clock::now().duration_since(renewed) < seconds
}

fn stored_versions(definition: &Entry) -> BTreeSet<String> {
    let definition = object(definition);
    let versions = definition["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    versions.iter().filter_map(|version| version.as_str().map(str::to_owned)).collect()
}

/// Who owns which fields, through whichever version.
fn owners(object: &Value) -> BTreeSet<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let mut owners = BTreeSet::new();
    for entry in &entries {
        let [manager, operation, part] =
            ["manager", "operation", "subresource"].map(|key| entry[key].to_string());
        owned(&entry["fieldsV1"], &format!("{manager} {operation} {part}"), &mut owners);
    }
    owners
}

/// Adds the paths of a set of fields, where `{}` stands for the field itself, as `{".": {}}` does beside others.
fn owned(fields: &Value, path: &str, owners: &mut BTreeSet<String>) {
    match fields.as_object().filter(|fields| !fields.is_empty()) {
        Some(fields) => {
            for (field, below) in fields {
                let path = if field == "." { path.to_owned() } else { format!("{path} {field}") };
                owned(below, &path, owners);
            }
        }
        None => {
            owners.insert(path.to_owned());
        }
    }
}

/// An object without the version it is stored in and without its owners.
fn meaning(mut object: Value) -> Value {
    object["apiVersion"] = Value::Null;
    object["metadata"]["managedFields"] = Value::Null;
    object
}

#[cfg(test)]
mod tests;
