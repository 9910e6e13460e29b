//! The served resources: built-in ones, and custom ones as they are defined and deleted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::registry::built_in::ALL_BUILT_IN;
use crate::registry::resource::Resource;
use crate::registry::reviews::REVIEWS;

/// All served resources at one moment.
#[derive(Debug, Default)]
pub(crate) struct ServedResources {
    /// The built-in resources, in the order of their table.
    pub built_in: Vec<Arc<Resource>>,
    /// The custom resources, by the names of their definitions.
    pub custom: BTreeMap<String, Arc<Resource>>,
    paths: HashMap<String, Arc<Resource>>,
}

impl ServedResources {
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
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.built_in.iter().chain(self.custom.values())
    }

    /// The resource of a path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.paths.get(&path(group, version, plural))
    }

    /// Whether a group has any served version.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.all().any(|resource| resource.name.group == group)
            || REVIEWS.iter().any(|review| review.group == group)
    }

    /// Whether a version of a group is served.
    pub(crate) fn has_version(&self, group: &str, version: &str) -> bool {
        self.all().any(|resource| {
            resource.name.group == group && resource.versions.iter().any(|served| served.name == version)
        })
    }
}

fn path(group: &str, version: &str, plural: &str) -> String {
    format!("{group}/{version}/{plural}")
}

/// The served resources, replaced atomically.
#[derive(Debug)]
pub(crate) struct Registry(ArcSwap<ServedResources>);

impl Default for Registry {
    fn default() -> Self {
        let built_in = ALL_BUILT_IN.iter().map(|built_in| Arc::new(Resource::from(built_in))).collect();
        Self(ArcSwap::from_pointee(ServedResources::new(built_in, BTreeMap::new())))
    }
}

impl Registry {
    /// The currently served resources.
    pub(crate) fn served(&self) -> Arc<ServedResources> {
        self.0.load_full()
    }

    /// The current resource of a path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.0.load().find(group, version, plural).cloned()
    }

    /// The built-in resource of a name.
    pub(crate) fn built_in(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        let served = self.0.load();
        let named =
            |resource: &&Arc<Resource>| resource.name.group == group && resource.name.resource == plural;
        served.built_in.iter().find(named).cloned()
    }

    /// Serves a custom resource, or stops serving it if it is none.
    pub(crate) fn set(&self, definition: &str, resource: Option<Arc<Resource>>) {
        let before = self.0.rcu(|served| {
            let mut custom = served.custom.clone();
            match &resource {
                Some(resource) => custom.insert(definition.to_owned(), Arc::clone(resource)),
                None => custom.remove(definition),
            };
            ServedResources::new(served.built_in.clone(), custom)
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
    fn built_in_resources_have_the_storage_keys_of_kube_apiserver() {
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
    fn all_built_in_resources_can_be_registered() {
        for resource in Registry::default().served().all() {
            let versions = resource.registered();
            assert_eq!(
                versions.map(|versions| versions.encoding().to_owned()),
                Ok(resource.stored.to_string())
            );
        }
    }
}
