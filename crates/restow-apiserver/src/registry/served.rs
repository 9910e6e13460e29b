//! What is served: the built-ins, and custom resources as they come and go.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use restow_core::protocol::storage_version::{InvalidVersions, Versions};
use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::{GroupResource, GroupVersion};

use crate::http::status::GroupKind;
use crate::registry::built_in::{ALL_BUILT_IN, BuiltIn};
use crate::registry::custom_resource::Custom;
use crate::verbs::review::REVIEWS;

/// One version a resource is served in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedVersion {
    /// Its name.
    pub name: String,
    /// The subresources in it.
    pub subresources: Vec<String>,
}

/// What a resource rests on.
#[derive(Clone, Debug)]
pub enum Nature {
    /// This server.
    BuiltIn(&'static BuiltIn),
    /// A CustomResourceDefinition.
    Custom(Arc<Custom>),
}

/// One resource that is served.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its name.
    pub name: GroupResource,
    /// The kind of its objects.
    pub kind: String,
    /// The kind of its lists.
    pub list_kind: String,
    /// The name of one object.
    pub singular: String,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories.
    pub categories: Vec<String>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// The versions it is served in, the preferred one first.
    pub versions: Vec<ServedVersion>,
    /// The version it is stored in.
    pub stored: GroupVersion,
    /// What all its keys begin with; it ends with a slash.
    pub prefix: String,
    /// What it rests on.
    pub nature: Nature,
}

impl Resource {
    /// The key of an object, or what the keys of all objects in a namespace begin with.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced && !namespace.is_empty() {
            format!("{}{namespace}/{name}", self.prefix)
        } else {
            format!("{}{name}", self.prefix)
        }
    }

    /// The `apiVersion` of its objects in a version.
    pub fn api_version(&self, version: &str) -> String {
        if self.name.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.name.group) }
    }

    /// Its kind and group.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(&self.name.group, &self.kind)
    }

    /// The hash discovery shows for how it is stored.
    pub fn hash(&self) -> String {
        storage_version_hash(&self.stored, &self.kind)
    }

    /// Whether it has a subresource in a version.
    pub fn has(&self, version: &str, subresource: &str) -> bool {
        let mut served = self.versions.iter().filter(|served| served.name == version);
        served.any(|served| served.subresources.iter().any(|name| name == subresource))
    }

    /// Whether its objects are namespaces.
    pub fn is_namespaces(&self) -> bool {
        self.name.group.is_empty() && self.name.resource == "namespaces"
    }

    /// Its definition, if it is a custom resource.
    pub fn custom(&self) -> Option<&Arc<Custom>> {
        match &self.nature {
            Nature::Custom(custom) => Some(custom),
            Nature::BuiltIn(_) => None,
        }
    }

    /// What is registered of it.
    pub fn registered(&self) -> Result<Versions, InvalidVersions> {
        let served: Vec<GroupVersion> =
            self.versions.iter().map(|version| GroupVersion::new(&self.name.group, &version.name)).collect();
        let mut decodable = match &self.nature {
            Nature::Custom(custom) => custom.decodable(),
            Nature::BuiltIn(_) => served.clone(),
        };
        if !decodable.contains(&self.stored) {
            decodable.insert(0, self.stored.clone());
        }
        Versions::new(&self.stored, &decodable, &served)
    }
}

impl From<&'static BuiltIn> for Resource {
    fn from(built_in: &'static BuiltIn) -> Self {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Self {
            name: GroupResource::new(built_in.group, built_in.plural),
            kind: built_in.kind.to_owned(),
            list_kind: format!("{}List", built_in.kind),
            singular: built_in.singular(),
            short_names: owned(built_in.short_names),
            categories: owned(built_in.categories),
            namespaced: built_in.namespaced,
            versions: vec![ServedVersion {
                name: built_in.version.to_owned(),
                subresources: owned(built_in.subresources),
            }],
            stored: GroupVersion::parse(built_in.stored),
            prefix: format!("/registry/{}/", built_in.prefix),
            nature: Nature::BuiltIn(built_in),
        }
    }
}

/// All that is served at one moment.
#[derive(Debug, Default)]
pub struct Served {
    /// The built-ins, as their table has them.
    pub built_in: Vec<Arc<Resource>>,
    /// The custom resources, by the names of their definitions.
    pub custom: BTreeMap<String, Arc<Resource>>,
    paths: HashMap<String, Arc<Resource>>,
}

impl Served {
    fn new(built_in: Vec<Arc<Resource>>, custom: BTreeMap<String, Arc<Resource>>) -> Self {
        let mut paths = HashMap::new();
        for resource in built_in.iter().chain(custom.values()) {
            for version in &resource.versions {
                let path = path(&resource.name.group, &version.name, &resource.name.resource);
                paths.insert(path, Arc::clone(resource));
            }
        }
        Self { built_in, custom, paths }
    }

    /// Every resource.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.built_in.iter().chain(self.custom.values())
    }

    /// The resource that is served at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.paths.get(&path(group, version, plural))
    }

    /// Whether anything is served in a version.
    pub fn has_group(&self, group: &str) -> bool {
        self.all().any(|resource| resource.name.group == group)
            || REVIEWS.iter().any(|review| review.group == group)
    }

    /// Whether a version of a group is served.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.all().any(|resource| {
            resource.name.group == group && resource.versions.iter().any(|served| served.name == version)
        })
    }
}

fn path(group: &str, version: &str, plural: &str) -> String {
    format!("{group}/{version}/{plural}")
}

/// What is served now; it changes whole.
#[derive(Debug)]
pub struct Registry(ArcSwap<Served>);

impl Default for Registry {
    fn default() -> Self {
        let built_in = ALL_BUILT_IN.iter().map(|built_in| Arc::new(Resource::from(built_in))).collect();
        Self(ArcSwap::from_pointee(Served::new(built_in, BTreeMap::new())))
    }
}

impl Registry {
    /// What is served now.
    pub fn served(&self) -> Arc<Served> {
        self.0.load_full()
    }

    /// The resource that is served at a path now.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.0.load().find(group, version, plural).cloned()
    }

    /// The built-in of a name; its table is fixed.
    pub fn built_in(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        let served = self.0.load();
        let named =
            |resource: &&Arc<Resource>| resource.name.group == group && resource.name.resource == plural;
        served.built_in.iter().find(named).cloned()
    }

    /// Serves a custom resource from now on as told, or no more.
    pub fn set(&self, definition: &str, resource: Option<Arc<Resource>>) {
        let before = self.0.rcu(|served| {
            let mut custom = served.custom.clone();
            match &resource {
                Some(resource) => custom.insert(definition.to_owned(), Arc::clone(resource)),
                None => custom.remove(definition),
            };
            Served::new(served.built_in.clone(), custom)
        });
        if let Some(before) = before.custom.get(definition).and_then(|before| before.custom()) {
            before.supersede(resource.as_ref().and_then(|now| now.custom()).map(|now| &**now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_ins_are_found_and_kept_where_kube_apiserver_keeps_them() {
        let registry = Registry::default();
        for (group, version, plural, key) in [
            ("", "v1", "configmaps", "/registry/configmaps/ns/a"),
            ("", "v1", "services", "/registry/services/specs/ns/a"),
            ("coordination.k8s.io", "v1", "leases", "/registry/leases/ns/a"),
            (
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
                "/registry/apiextensions.k8s.io/customresourcedefinitions/a",
            ),
            ("events.k8s.io", "v1", "events", "/registry/events/ns/a"),
        ] {
            let found = registry.find(group, version, plural).map(|resource| resource.key("ns", "a"));
            assert_eq!(found.as_deref(), Some(key), "{plural}");
        }
        assert!(registry.find("", "v2", "configmaps").is_none());
        assert!(registry.find("x", "v1", "configmaps").is_none());
    }

    #[test]
    fn all_built_ins_can_be_registered() {
        for resource in Registry::default().served().all() {
            let versions = resource.registered();
            assert_eq!(
                versions.map(|versions| versions.encoding().to_owned()),
                Ok(resource.stored.to_string())
            );
        }
    }
}
