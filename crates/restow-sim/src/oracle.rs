//! Judges what is stored, and nothing that restow says.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use restow_core::progress::Progress;
use restow_core::resource::{GroupVersion, storage_version_hash};
use restow_store::{Change, Entry};
use serde_json::Value;

use crate::layer::Layer;
use crate::plan::Scene;
use crate::store::Memory;
use crate::trace::Trace;

/// The definition in the store.
pub const DEFINITION: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/boats.sim.example";

/// The storage version hash of a version.
pub fn hash_of(version: &str) -> String {
    storage_version_hash(&GroupVersion::new("sim.example", version), "Boat")
}

/// Reads every write.
#[derive(Clone)]
pub struct Oracle {
    trace: Trace,
    store: Arc<Memory>,
    scene: Scene,
    /// The uids of objects that were deleted.
    deleted: Arc<Mutex<BTreeSet<String>>>,
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
    /// An oracle that watches a store.
    pub fn watch(scene: Scene, trace: &Trace, store: &Arc<Memory>) -> Self {
        let (trace, own) = (trace.clone(), Arc::clone(store));
        let oracle = Self { trace, store: own, scene, deleted: Arc::default() };
        let witness = oracle.clone();
        store.tell(Box::new(move |change| witness.judge(change)));
        oracle
    }

    fn judge(&self, change: &Change) {
        let how = change.now.as_ref().map_or_else(|| "deleted".to_owned(), kept);
        let told = [self.scene.prefix(), DEFINITION, "/registry/storageversions/sim.example"];
        if told.iter().any(|prefix| change.key.starts_with(prefix)) {
            self.trace.step(&format!("  store {} {} {how}", change.revision, change.key));
        }
        if change.key == DEFINITION {
            self.definition(change);
        } else if change.key.starts_with(self.scene.prefix()) && self.scene != Scene::Keys {
            self.object(change);
        }
    }

    /// S1: a version leaves storedVersions only when nothing is stored in it.
    fn definition(&self, change: &Change) {
        let (Some(before), Some(now)) = (&change.before, &change.now) else { return };
        let stored = |entry: &Entry| -> BTreeSet<String> {
            let object = object(entry);
            let versions = object["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
            versions.iter().filter_map(|version| version.as_str().map(str::to_owned)).collect()
        };
        for dropped in stored(before).difference(&stored(now)) {
            for entry in self.store.below(self.scene.prefix()) {
                if kept(&entry) == *dropped {
                    let what = format!("{dropped} was pruned while {} is stored in it", entry.key);
                    self.trace.violate("S1", what);
                }
            }
        }
    }

    /// S3, S4 and S5: users alone create, change and delete.
    fn object(&self, change: &Change) {
        let number = |object: &Value| object["spec"]["n"].as_u64();
        let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let before = change.before.as_ref().map(object);
        let now = change.now.as_ref().map(object);
        let key = &change.key;
        match (before, now) {
            (None, Some(now)) => {
                let deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
                if number(&now).is_none() || deleted.contains(&uid(&now)) {
                    self.trace.violate("S3", format!("{key} is back, and no user has created it"));
                }
            }
            (Some(before), None) => {
                self.deleted.lock().unwrap_or_else(PoisonError::into_inner).insert(uid(&before));
            }
            (Some(before), Some(now)) if number(&before) == number(&now) => {
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

    /// S2: a run is verified only when every object that was there at its last look is stored as it should be.
    pub fn verified(&self, progress: &Progress, layer: &Layer) {
        let (looked, wanted) = {
            let notes = layer.notes();
            match (self.scene, progress.encryption.as_deref().map(crate::run::key_of)) {
                (Scene::Keys, Some(Some(key))) => (notes.measured, key.to_owned()),
                (Scene::Keys, _) => {
                    let what = "verified although nobody knows what the servers encrypt with".to_owned();
                    return self.trace.violate("S2", what);
                }
                _ => (notes.looked, progress.storage_version.clone()),
            }
        };
        for entry in self.store.below(self.scene.prefix()) {
            let kept = kept(&entry);
            if entry.mod_revision <= looked && kept != wanted {
                let key = &entry.key;
                self.trace.violate("S2", format!("verified for {wanted} while {key} is stored as {kept}"));
            }
        }
    }

    /// The names of objects that are not kept as wanted.
    pub fn stale(&self, wanted: &str) -> Vec<String> {
        let stale = self.store.below(self.scene.prefix()).into_iter().filter(|entry| kept(entry) != wanted);
        stale.filter_map(|entry| Some(entry.key.rsplit('/').next()?.to_owned())).collect()
    }
}

/// Who owns which fields.
fn owners(object: &Value) -> BTreeSet<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let owner = |entry: &Value| {
        let [manager, operation, part] =
            ["manager", "operation", "subresource"].map(|key| entry[key].to_string());
        format!("{manager} {operation} {part} {}", entry["fieldsV1"])
    };
    entries.iter().map(owner).collect()
}

/// An object without the version it is stored in and without its owners.
fn meaning(mut object: Value) -> Value {
    object["apiVersion"] = Value::Null;
    object["metadata"]["managedFields"] = Value::Null;
    object
}
