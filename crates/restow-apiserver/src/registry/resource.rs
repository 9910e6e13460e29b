//! A served resource, built-in or custom.

use std::cmp::Reverse;
use std::sync::Arc;

use kube::core::Version as ApiVersion;
use restow_core::protocol::storage_version::{InvalidVersions, Versions};
use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::{GroupResource, GroupVersion};
use restow_storageversion::CustomResource;
use serde_json::Value;

use crate::http::status::GroupKind;
use crate::object::meta::is_deleting;
use crate::registry::built_in::BuiltIn;
use crate::registry::custom_resource::ServedDefinition;
use crate::registry::definition::{Definition, Names, Version};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedVersion {
    pub name: String,
    /// The subresources in it.
    pub subresources: Vec<String>,
}

/// How a resource is implemented.
#[derive(Clone, Debug)]
pub(crate) enum Implementation {
    /// By this server.
    BuiltIn(&'static BuiltIn),
    /// By a CustomResourceDefinition.
    Custom(Arc<ServedDefinition>),
}

/// A served resource.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub name: GroupResource,
    /// The kind of its objects.
    pub kind: String,
    pub list_kind: String,
    /// The name of one object.
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// The served versions, the preferred one first.
    pub versions: Vec<ServedVersion>,
    /// The storage version.
    pub stored: GroupVersion,
    /// The prefix of all its keys, with a trailing slash.
    pub prefix: String,
    /// How it is implemented.
    pub implementation: Implementation,
}

impl Resource {
    /// The key of an object, or the prefix of all keys in a namespace.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced && !namespace.is_empty() {
            format!("{}{namespace}/{name}", self.prefix)
        } else {
            format!("{}{name}", self.prefix)
        }
    }

    /// The `apiVersion` of its objects in a version.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.name.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.name.group) }
    }

    pub(crate) fn group_kind(&self) -> GroupKind {
        GroupKind::new(&self.name.group, &self.kind)
    }

    /// The storage version hash in discovery.
    pub(crate) fn hash(&self) -> String {
        storage_version_hash(&self.stored, &self.kind)
    }

    /// Whether it has a subresource in a version.
    pub(crate) fn has(&self, version: &str, subresource: &str) -> bool {
        let mut served = self.versions.iter().filter(|served| served.name == version);
        served.any(|served| served.subresources.iter().any(|name| name == subresource))
    }

    /// Whether its objects are namespaces.
    pub(crate) fn is_namespaces(&self) -> bool {
        self.name.group.is_empty() && self.name.resource == "namespaces"
    }

    /// Its definition, if it is a custom resource.
    pub(crate) fn custom(&self) -> Option<&Arc<ServedDefinition>> {
        match &self.implementation {
            Implementation::Custom(custom) => Some(custom),
            Implementation::BuiltIn(_) => None,
        }
    }

    /// The versions to register.
    pub(crate) fn registered(&self) -> Result<Versions, InvalidVersions> {
        let served: Vec<GroupVersion> =
            self.versions.iter().map(|version| GroupVersion::new(&self.name.group, &version.name)).collect();
        let mut decodable = match &self.implementation {
            Implementation::Custom(custom) => custom.decodable(),
            Implementation::BuiltIn(_) => served.clone(),
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
            implementation: Implementation::BuiltIn(built_in),
        }
    }
}

/// The resource of a definition, which replaces the former one; none if the definition has no storage version.
pub(crate) fn resource(
    object: &Value,
    writer: CustomResource,
    before: Option<&ServedDefinition>,
) -> Option<Resource> {
    let definition = Definition::parse(object);
    let names = Names::parse(&object["status"]["acceptedNames"]);
    let stored = GroupVersion::new(&definition.group, &definition.storage_version()?.name);
    let mut versions: Vec<ServedVersion> = definition.served().map(served).collect();
    versions.sort_by_cached_key(|version| Reverse(ApiVersion::parse(&version.name).priority()));
    Some(Resource {
        name: GroupResource::new(&definition.group, &names.plural),
        kind: names.kind,
        list_kind: names.list_kind,
        singular: names.singular,
        short_names: names.short_names,
        categories: names.categories,
        namespaced: definition.namespaced,
        versions,
        stored,
        prefix: format!("/registry/{}/{}/", definition.group, names.plural),
        implementation: Implementation::Custom(Arc::new(ServedDefinition::new(
            object, definition, writer, before,
        ))),
    })
}

fn served(version: &Version) -> ServedVersion {
    let subresources = if version.status { vec!["status".to_owned()] } else { Vec::new() };
    ServedVersion { name: version.name.clone(), subresources }
}

/// Whether new objects can be created: not while the definition is being deleted.
pub(crate) fn takes_new(resource: &Resource) -> bool {
    resource.custom().is_none_or(|custom| !is_deleting(&custom.object))
}
