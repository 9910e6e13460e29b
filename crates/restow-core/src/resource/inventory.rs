//! What a cluster stores, from its discovery documents, CRDs and APIServices.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::resource::hash::{storage_version_hash, version_of_hash};
use crate::resource::name::{GroupResource, GroupVersion};
use crate::resource::near::nearest;

/// A resource in a discovery document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// The plural name; subresources have a slash in it.
    pub name: String,
    /// The singular name, empty when the server gives none.
    pub singular: String,
    /// The kind of its objects.
    pub kind: String,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// The verbs that it supports.
    pub verbs: Vec<String>,
    /// Short names that users may type, such as `cm`.
    pub short_names: Vec<String>,
    /// The published hash of its storage version.
    pub hash: Option<String>,
}

/// The discovery document of one version of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The group and version that it describes.
    pub version: GroupVersion,
    /// Whether an aggregated API server serves it.
    pub aggregated: bool,
    /// The resources that it lists, or why it could not be read.
    pub resources: Result<Vec<Served>, String>,
}

/// The parts of a CustomResourceDefinition that matter for storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crd {
    /// The resource that it defines.
    pub name: GroupResource,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`, which counts changes of the spec.
    pub generation: i64,
    /// The version that new writes are stored in.
    pub storage_version: String,
    /// Every version, and whether it is served.
    pub versions: Vec<(String, bool)>,
    /// `status.storedVersions`: versions that objects may still be stored in.
    pub stored_versions: Vec<String>,
    /// When it was last changed, by the API server's clock.
    pub changed: Option<Timestamp>,
    /// Whether a webhook converts its objects between versions.
    pub webhook: bool,
    /// Whether its objects are being converted in place.
    pub converting: bool,
}

impl Crd {
    /// Identifies this state of the CRD by uid and generation, so that a CRD that changed and changed back differs.
    pub fn definition(&self) -> String {
        format!("{}/{}", self.uid, self.generation)
    }
}

/// Who serves a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// kube-apiserver itself.
    BuiltIn,
    /// A CustomResourceDefinition.
    Custom,
    /// An aggregated API server.
    Aggregated,
}

/// Why a resource is not migrated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Its objects are stored by another resource, which is migrated instead.
    SharedWith(GroupResource),
    /// It does not support list and patch.
    Verbs(Vec<&'static str>),
    /// It is not stored, or its server does not publish its storage version.
    NoHash(Origin),
    /// Its CRD does not serve the storage version, so API servers do not publish it.
    Unserved(String),
    /// It is Events: a rewrite would extend their lifetime.
    Events,
    /// Its server could not be queried.
    Unavailable(String),
    /// Only its StorageVersion could show how it is stored, and StorageVersions may not be listed, for this reason.
    Unregistered(String),
    /// Its objects are being converted in place: a rewrite would drop the fields of those that are not converted yet.
    Converting,
}

impl Obstacle {
    /// A short message for a user.
    pub fn explain(&self) -> String {
        match self {
            Self::SharedWith(other) => format!("stored as {other}, migrated there"),
            Self::Verbs(missing) => format!("does not support {}", missing.join(" and ")),
            Self::NoHash(Origin::Aggregated) => "its API server publishes no storage version".to_owned(),
            Self::NoHash(_) => "not stored".to_owned(),
            Self::Unserved(version) => format!(
                "its storage version {version} is not served, so that the API servers do not show how they store it; \
                 set served: true for {version} in its CustomResourceDefinition for the time of the migration"
            ),
            Self::Events => "a rewrite would extend the life of events; --include-events does it".to_owned(),
            Self::Unavailable(why) => format!("cannot query its API server: {why}"),
            Self::Converting => {
                "a Conversion converts its objects in place, and a rewrite would drop the fields of those \
                 that are not converted yet; it can be migrated when the Conversion has succeeded"
                    .to_owned()
            }
            Self::Unregistered(why) => {
                format!(
                    "only its StorageVersion could show how it is stored, and StorageVersions cannot be listed: {why}"
                )
            }
        }
    }
}

/// One resource of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The plural name and the group.
    pub name: GroupResource,
    /// The singular name.
    pub singular: String,
    /// The kind of its objects.
    pub kind: String,
    /// Short names that users may type, such as `cm`.
    pub short_names: Vec<String>,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// The served versions, the preferred one first.
    pub served: Vec<GroupVersion>,
    /// The published hash of its storage version.
    pub hash: Option<String>,
    /// The version that the hash stands for.
    pub storage_version: Option<GroupVersion>,
    /// Who serves it.
    pub origin: Origin,
    /// The CRD of a custom resource.
    pub crd: Option<Crd>,
    /// Resources that share its storage.
    pub shared_by: Vec<GroupResource>,
    /// Why it cannot be migrated, if it cannot.
    pub obstacle: Option<Obstacle>,
}

impl Resource {
    /// The version that requests are sent to: the storage version if it is served, else the preferred one.
    pub fn endpoint(&self) -> Option<&GroupVersion> {
        self.served
            .iter()
            .find(|version| Some(*version) == self.storage_version.as_ref())
            .or(self.served.first())
    }

    /// The storage version without its group, as reports show it.
    pub fn storage_version_name(&self) -> &str {
        self.storage_version.as_ref().map_or("unknown", |version| &version.version)
    }

    /// The name of the version that a hash stands for, if it is known; with its group if that differs from the resource's.
    pub fn version_of(&self, hash: &str) -> Option<String> {
        let defined = self.crd.iter().flat_map(|crd| &crd.versions);
        let defined = defined.map(|(version, _)| GroupVersion::new(&self.name.group, version));
        let known: Vec<GroupVersion> =
            self.storage_version.iter().chain(&self.served).cloned().chain(defined).collect();
        let version = version_of_hash(hash, &self.kind, &self.name.group, &known)?;
        Some(if version.group == self.name.group { version.version } else { version.to_string() })
    }

    /// Whether a migration is needed, by the CRD alone.
    pub fn need(&self) -> Need {
        match &self.crd {
            Some(crd) if crd.stored_versions == [crd.storage_version.clone()] => Need::Unlikely,
            Some(crd) => Need::Yes(
                crd.stored_versions
                    .iter()
                    .filter(|stored| **stored != crd.storage_version)
                    .cloned()
                    .collect(),
            ),
            None => Need::Unknown,
        }
    }

    /// Whether it may need a migration and cannot be checked.
    pub fn is_unseen(&self) -> bool {
        match &self.obstacle {
            Some(Obstacle::Unavailable(_)) => true,
            Some(Obstacle::Unregistered(_)) => self.need() == Need::Unknown,
            _ => false,
        }
    }

    /// Whether a migration is recommended, given the number of objects, if it is known, and what shows how they are stored.
    pub fn recommend(&self, objects: Option<u64>, evidence: Evidence) -> Recommendation {
        match (&self.obstacle, self.need()) {
            // It is needed, even if it is not possible.
            (None | Some(Obstacle::Unserved(_) | Obstacle::Unregistered(_)), Need::Yes(_)) => {
                let stored = self.crd.as_ref().map(|crd| crd.stored_versions.join(", "));
                Recommendation::Yes(format!("storedVersions {}", stored.unwrap_or_default()))
            }
            // It may be needed once its server answers.
            (Some(obstacle @ Obstacle::Unavailable(_)), _) => Recommendation::Maybe(obstacle.explain()),
            // Its storage version may not be read.
            (Some(obstacle @ Obstacle::Unregistered(_)), Need::Unknown) => {
                Recommendation::Maybe(obstacle.explain())
            }
            (Some(obstacle), _) => Recommendation::No(obstacle.explain()),
            (None, Need::Unlikely) => Recommendation::No(format!(
                "its CRD says that all is stored in {}",
                self.storage_version_name()
            )),
            (None, Need::Unknown) if objects == Some(0) => Recommendation::No("it has no objects".to_owned()),
            (None, Need::Unknown) => match evidence {
                Evidence::Proof(proof) => Recommendation::No(proof),
                Evidence::Doubt(doubt) => Recommendation::Maybe(doubt),
                Evidence::Nothing => Recommendation::Maybe(NO_EVIDENCE.to_owned()),
            },
        }
    }
}

/// The message for a resource whose CRD, StorageState and earlier runs show nothing.
pub const NO_EVIDENCE: &str = "nothing shows in which version its objects are stored";

/// What is known about how the objects of a resource are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing is known.
    Nothing,
    /// All objects are stored in the current version and under the current key, for this reason.
    Proof(String),
    /// It was proven once, and this is why it may no longer hold.
    Doubt(String),
}

impl Evidence {
    /// The stronger of two; a doubt counts more than nothing.
    pub fn or(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Proof(_), _) | (_, Self::Nothing) => self,
            (_, Self::Proof(_)) | (Self::Nothing, _) => other,
            (Self::Doubt(_), Self::Doubt(_)) => self,
        }
    }
}

/// Whether to migrate a resource, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recommendation {
    /// A migration is needed.
    Yes(String),
    /// A migration may be needed.
    Maybe(String),
    /// No migration is needed.
    No(String),
}

/// Whether a resource needs a migration, by its CRD alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Its CRD says that objects may be stored in these other versions.
    Yes(Vec<String>),
    /// Its CRD says that all objects are stored in the storage version; only a key rotation would change that.
    Unlikely,
    /// The CRD does not show it, or there is none.
    Unknown,
}

/// Builds the inventory from discovery documents, in the order of preference, and CRDs.
pub fn inventory(documents: &[Document], crds: &[Crd], include_events: bool) -> Vec<Resource> {
    let served_versions: Vec<&GroupVersion> = documents.iter().map(|document| &document.version).collect();
    let mut found: BTreeMap<GroupResource, Resource> = BTreeMap::new();
    for document in documents {
        for served in document.resources.iter().flatten().filter(|served| !served.name.contains('/')) {
            let name = GroupResource::new(&document.version.group, &served.name);
            let crd = crds.iter().find(|crd| crd.name == name);
            let entry = found.entry(name.clone()).or_insert_with(|| Resource {
                name,
                singular: served.singular.clone(),
                kind: served.kind.clone(),
                short_names: served.short_names.clone(),
                namespaced: served.namespaced,
                served: Vec::new(),
                hash: served.hash.clone().filter(|hash| !hash.is_empty()),
                storage_version: None,
                origin: match (crd, document.aggregated) {
                    (Some(_), _) => Origin::Custom,
                    (None, true) => Origin::Aggregated,
                    (None, false) => Origin::BuiltIn,
                },
                crd: crd.cloned(),
                shared_by: Vec::new(),
                obstacle: missing_verbs(&served.verbs),
            });
            entry.served.push(document.version.clone());
        }
    }
    for resource in found.values_mut() {
        settle_storage_version(resource, &served_versions);
    }
    mark_shared(&mut found);
    for resource in found.values_mut() {
        if resource.obstacle.is_none() {
            resource.obstacle = half_known(resource, documents);
        }
        if resource.obstacle.is_none() {
            resource.obstacle = unserved(resource);
        }
        if resource.crd.as_ref().is_some_and(|crd| crd.converting) {
            resource.obstacle = Some(Obstacle::Converting);
        }
        if resource.obstacle.is_none() && resource.hash.is_none() {
            resource.obstacle = Some(Obstacle::NoHash(resource.origin));
        }
        if resource.obstacle.is_none() && resource.kind == "Event" && is_events(resource) && !include_events {
            resource.obstacle = Some(Obstacle::Events);
        }
    }
    found.into_values().collect()
}

/// Whether only a StorageVersion object can show how a resource is stored.
pub fn hides_storage(resource: &Resource) -> bool {
    matches!(resource.obstacle, Some(Obstacle::NoHash(_) | Obstacle::Unserved(_)))
}

/// Adds the encoding version that API servers have registered for a resource whose discovery does not publish it, or why it
/// is not known. Whether all servers agree on it is not decided here.
pub fn take_registered(resource: &mut Resource, registered: Result<Option<String>, String>) {
    match registered {
        Ok(Some(version)) => {
            let version = GroupVersion::parse(&version);
            resource.hash = Some(storage_version_hash(&version, &resource.kind));
            resource.storage_version = Some(version);
            resource.obstacle = None;
        }
        Ok(None) => {}
        Err(why) => resource.obstacle = Some(Obstacle::Unregistered(why)),
    }
}

fn missing_verbs(verbs: &[String]) -> Option<Obstacle> {
    let missing: Vec<_> =
        ["list", "patch"].into_iter().filter(|verb| !verbs.iter().any(|v| v == verb)).collect();
    (!missing.is_empty()).then_some(Obstacle::Verbs(missing))
}

/// A version of the resource's group whose document could not be read may serve it too, which affects how it is written.
fn half_known(resource: &Resource, documents: &[Document]) -> Option<Obstacle> {
    let of_group = documents.iter().filter(|document| document.version.group == resource.name.group);
    let why = of_group.filter_map(|document| document.resources.as_ref().err()).next()?;
    Some(Obstacle::Unavailable(why.clone()))
}

/// An API server publishes no hash for a CRD whose storage version is not served.
fn unserved(resource: &Resource) -> Option<Obstacle> {
    let crd = resource.crd.as_ref()?;
    let served = crd.versions.iter().any(|(name, served)| *served && *name == crd.storage_version);
    (!served).then(|| Obstacle::Unserved(crd.storage_version.clone()))
}

fn is_events(resource: &Resource) -> bool {
    resource.name.resource == "events" && ["", "events.k8s.io"].contains(&resource.name.group.as_str())
}

fn settle_storage_version(resource: &mut Resource, served: &[&GroupVersion]) {
    if let Some(crd) = &resource.crd {
        // Discovery follows the CRD with a delay.
        let version = GroupVersion::new(&crd.name.group, &crd.storage_version);
        resource.hash = Some(storage_version_hash(&version, &resource.kind));
        resource.storage_version = Some(version);
    } else if let Some(hash) = &resource.hash {
        resource.storage_version =
            version_of_hash(hash, &resource.kind, &resource.name.group, served.iter().copied());
    }
}

/// Resources of the same kind with the same hash share their storage, under the group that the hash stands for.
fn mark_shared(found: &mut BTreeMap<GroupResource, Resource>) {
    let mut stores: BTreeMap<(String, String), Vec<GroupResource>> = BTreeMap::new();
    for resource in found.values().filter(|resource| resource.storage_version.is_some()) {
        if let Some(hash) = &resource.hash {
            stores.entry((resource.kind.clone(), hash.clone())).or_default().push(resource.name.clone());
        }
    }
    for names in stores.into_values().filter(|names| names.len() > 1) {
        let owns = |name: &&GroupResource| {
            found[*name].storage_version.as_ref().is_some_and(|version| version.group == name.group)
        };
        let owner = names.iter().find(owns).unwrap_or(&names[0]).clone();
        let others: Vec<_> = names.into_iter().filter(|name| *name != owner).collect();
        for other in &others {
            if let Some(resource) = found.get_mut(other) {
                resource.obstacle = Some(Obstacle::SharedWith(owner.clone()));
            }
        }
        if let Some(resource) = found.get_mut(&owner) {
            resource.shared_by = others;
        }
    }
}

/// Why a name does not identify one resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No resource has that name.
    #[error("the server has no resource {name:?}{}", hint(.near))]
    Unknown {
        /// The name as it was typed.
        name: String,
        /// Similar names, the most similar first.
        near: Vec<String>,
    },
    /// Several resources have that name.
    #[error("{name:?} may be {}: name one with its group", .choices.join(" or "))]
    Ambiguous {
        /// The name as it was typed.
        name: String,
        /// The full names.
        choices: Vec<String>,
    },
}

fn hint(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(" (did you mean {}?)", near.join(" or ")) }
}

/// Finds the resource with a plural, singular, short or full name, or a kind.
pub fn find<'a>(inventory: &'a [Resource], name: &str) -> Result<&'a Resource, NameError> {
    let wanted = name.to_lowercase();
    if let Some(exact) = inventory.iter().find(|resource| resource.name.to_string() == wanted) {
        return Ok(exact);
    }
    let (short, rest) = match wanted.split_once('.') {
        Some((short, rest)) => (short, Some(rest)),
        None => (wanted.as_str(), None),
    };
    let is_called = |resource: &&Resource| {
        resource.name.resource == short
            || resource.singular == short
            || resource.kind.to_lowercase() == short
            || resource.short_names.iter().any(|name| name == short)
    };
    // A group, or a version and its group, may follow the name, as in kubectl.
    let is_of = |resource: &&Resource| {
        let versioned = |version: &GroupVersion| {
            let full = format!("{}.{}", version.version, version.group);
            rest == Some(full.trim_end_matches('.'))
        };
        rest.is_none_or(|rest| resource.name.group == rest) || resource.served.iter().any(versioned)
    };
    let matches: Vec<&Resource> = inventory.iter().filter(is_called).filter(is_of).collect();
    // Resources that share their storage count as one.
    let owns = |resource: &&&Resource| {
        let shared = |other: &&Resource| {
            other.name == resource.name || other.obstacle == Some(Obstacle::SharedWith(resource.name.clone()))
        };
        matches.iter().all(shared)
    };
    match (matches.as_slice(), matches.iter().find(owns)) {
        (_, Some(one)) => Ok(one),
        ([], None) => Err(NameError::Unknown { name: name.to_owned(), near: near_names(inventory, &wanted) }),
        (several, None) => Err(NameError::Ambiguous {
            name: name.to_owned(),
            choices: several.iter().map(|resource| resource.name.to_string()).collect(),
        }),
    }
}

fn near_names(inventory: &[Resource], wanted: &str) -> Vec<String> {
    let names = inventory.iter().map(|resource| &resource.name);
    nearest(wanted, names.map(|name| (name.to_string(), vec![name.resource.clone()])))
}

#[cfg(test)]
mod tests;
