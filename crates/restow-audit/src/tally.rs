//! Decides what each stored value is, and counts it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    expectation::{Expectations, group_of},
    identity,
    place::{Object, Place, place, resource_name},
    report::{Gap, Report, ResourceReport, Undecodable, Unserved},
    value::{self, Encryption},
};

/// How many names of stale objects a resource gets in a report, unless told otherwise.
const NAMES: usize = 100;
/// How many undecodable values get into a report.
const UNDECODABLE: usize = 1000;

/// A stale object, for those who want all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale<'t> {
    /// The resource, such as `widgets.example.com`.
    pub resource: &'t str,
    /// The namespace, if there is one, a slash and the name.
    pub name: &'t str,
}

/// Called for each stale object.
type EachStale<'l> = Box<dyn FnMut(Stale<'_>) + Send + 'l>;

/// Counts stored values.
pub struct Tally<'l> {
    /// Such as `/registry/`.
    prefix: String,
    expected: Expectations,
    max_names: usize,
    each_stale: Option<EachStale<'l>>,
    resources: HashMap<String, Counts>,
    /// The reasons, by key.
    undecodable: BTreeMap<String, String>,
    undecodable_count: u64,
    outside: u64,
    cluster: Option<String>,
}

#[derive(Debug, Default)]
struct Counts {
    group: String,
    objects: u64,
    bytes: u64,
    versions: BTreeMap<String, u64>,
    encryption: BTreeMap<String, u64>,
    /// Whether anything is expected of its objects.
    is_compared: bool,
    stale: u64,
    names: BTreeSet<String>,
    /// Objects of which the version is expected and cannot be seen.
    unseen: u64,
}

impl Counts {
    /// Keeps a name if it is among the first ones in order, so that every source gives the same ones.
    fn add_name(&mut self, name: &str, most: usize) {
        if self.names.len() < most || self.names.last().is_some_and(|last| name < last.as_str()) {
            self.names.insert(name.to_owned());
        }
        if self.names.len() > most {
            self.names.pop_last();
        }
    }
}

/// What a value is.
struct Seen {
    encryption: Option<Encryption>,
    /// Its version; `None` if it is encrypted and the key is not at hand.
    version: Result<Option<String>, String>,
    cluster: Option<String>,
}

impl<'l> Tally<'l> {
    /// Counts what is below a prefix of keys, which is `/registry` in most clusters.
    pub fn new(prefix: &str, expected: Expectations) -> Self {
        Self {
            prefix: format!("/{}/", prefix.trim_matches('/')),
            expected,
            max_names: NAMES,
            each_stale: None,
            resources: HashMap::new(),
            undecodable: BTreeMap::new(),
            undecodable_count: 0,
            outside: 0,
            cluster: None,
        }
    }

    /// How many names of stale objects each resource gets in the report.
    pub fn max_names(mut self, names: usize) -> Self {
        self.max_names = names;
        self
    }

    /// Calls a function for each stale object.
    pub fn each_stale(mut self, each: impl FnMut(Stale<'_>) + Send + 'l) -> Self {
        self.each_stale = Some(Box::new(each));
        self
    }

    /// Counts one key.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        if !key.starts_with(self.prefix.as_bytes()) {
            self.outside += 1;
            return;
        }
        let Ok(text) = str::from_utf8(key) else {
            return self.add_undecodable(key, "its key is not text");
        };
        match place(text, &self.prefix) {
            Place::Outside => self.outside += 1,
            Place::Internal => {}
            Place::Malformed => self.add_undecodable(key, "its key is not that of an object"),
            Place::Object(object) => self.add_object(text, object, value),
        }
    }

    fn add_object(&mut self, key: &str, object: Object<'_>, value: &[u8]) {
        let seen = self.look(key, object, value);
        // The key of a resource that is not known does not tell its group.
        let group =
            object.group.or_else(|| seen.version.as_ref().ok()?.as_deref().map(group_of)).unwrap_or_default();
        let resource = resource_name(object.resource, group);
        let is_compared = self.expected.covers(&resource, group) || self.expected.transformers().is_some();
        let version_is_current = match &seen.version {
            Ok(Some(version)) => self.expected.is_current(&resource, group, version),
            _ => None,
        };
        let transformers = self.expected.transformers();
        let key_is_current =
            transformers.map(|transformers| transformers.of(group, object.resource).is_current(value));
        // Nothing else than v1 was ever stored in the core group.
        let is_unseen =
            seen.version == Ok(None) && !group.is_empty() && self.expected.covers(&resource, group);
        let is_stale =
            seen.version.is_ok() && (version_is_current == Some(false) || key_is_current == Some(false));
        if let Some(cluster) = seen.cluster {
            self.cluster = Some(cluster);
        }
        if let (true, Some(each)) = (is_stale, &mut self.each_stale) {
            each(Stale { resource: &resource, name: object.name });
        }
        let max_names = self.max_names;
        let counts = self.resources.entry(resource).or_default();
        if counts.objects == 0 {
            counts.group = group.to_owned();
        }
        counts.objects += 1;
        counts.bytes += value.len() as u64;
        counts.is_compared |= is_compared;
        counts.unseen += u64::from(is_unseen);
        counts.stale += u64::from(is_stale);
        if is_stale {
            counts.add_name(object.name, max_names);
        }
        if let Some(encryption) = seen.encryption {
            count(&mut counts.encryption, &encryption.to_string());
        }
        match seen.version {
            Ok(Some(version)) => count(&mut counts.versions, &version),
            Ok(None) => {}
            Err(reason) => self.add_undecodable(key.as_bytes(), &reason),
        }
    }

    /// Looks at a value, through its encryption if the key is at hand.
    fn look(&self, key: &str, object: Object<'_>, value: &[u8]) -> Seen {
        let decode = |plain: &[u8]| {
            let version = value::decode(plain).map(|found| Some(found.api_version)).map_err(str::to_owned);
            let is_cluster = key.strip_prefix(&self.prefix) == Some(identity::KEY);
            (version, is_cluster.then(|| identity::uid(plain)).flatten())
        };
        let encryption = match Encryption::parse(value) {
            Ok(encryption) => encryption,
            Err(reason) => return Seen { encryption: None, version: Err(reason.to_owned()), cluster: None },
        };
        let (version, cluster) = match (&encryption, self.expected.transformers()) {
            (Encryption::Identity, _) => decode(value),
            (Encryption::Key { .. }, Some(transformers)) => {
                match transformers.of(object.group.unwrap_or_default(), object.resource).reveal(key, value) {
                    Ok(Some(plain)) => decode(&plain),
                    Ok(None) => decode(value),
                    Err(error) => (Err(error.to_string()), None),
                }
            }
            _ => (Ok(None), None),
        };
        Seen { encryption: Some(encryption), version, cluster }
    }

    fn add_undecodable(&mut self, key: &[u8], reason: &str) {
        self.undecodable_count += 1;
        self.undecodable.insert(String::from_utf8_lossy(key).into_owned(), reason.to_owned());
        if self.undecodable.len() > UNDECODABLE {
            self.undecodable.pop_last();
        }
    }

    /// The report of everything that was counted.
    pub fn report(self, source: impl Into<String>, revision: u64) -> Report {
        let Self { expected, undecodable, resources, .. } = self;
        let mut gaps = Vec::new();
        let mut unserved = Vec::new();
        let mut reports: Vec<ResourceReport> = Vec::new();
        let mut resources: Vec<(String, Counts)> = resources.into_iter().collect();
        resources.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (resource, counts) in resources {
            if expected.is_unserved(&resource, &counts.group) {
                let Counts { objects, bytes, .. } = counts;
                unserved.push(Unserved { resource: resource.clone(), objects, bytes });
            }
            if counts.unseen > 0 {
                gaps.push(Gap::Versions { resource: resource.clone(), objects: counts.unseen });
            }
            if are_keys_mixed(&counts, &expected) {
                gaps.push(Gap::Keys { resource: resource.clone() });
            }
            reports.push(ResourceReport {
                resource,
                objects: counts.objects,
                bytes: counts.bytes,
                versions: counts.versions,
                encryption: counts.encryption,
                stale: counts.is_compared.then_some(counts.stale),
                stale_names: counts.names.into_iter().collect(),
            });
        }
        let undecodable = undecodable.into_iter().map(|(key, reason)| Undecodable { key, reason }).collect();
        Report {
            source: source.into(),
            revision,
            resources: reports,
            undecodable,
            unserved,
            undecodable_count: self.undecodable_count,
            gaps,
            outside: self.outside,
            cluster: self.cluster,
        }
    }
}

/// Whether some objects must be under an old key, and nothing says which ones.
fn are_keys_mixed(counts: &Counts, expected: &Expectations) -> bool {
    match expected.transformers() {
        None => counts.encryption.len() > 1 && expected.has_versions(),
        // The configuration names a KMS plugin, and not the plugin's key.
        Some(_) => counts.encryption.keys().filter(|key| key.starts_with("kms:v2:")).count() > 1,
    }
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => {
            counts.insert(name.to_owned(), 1);
        }
    }
}

#[cfg(test)]
mod tests;
