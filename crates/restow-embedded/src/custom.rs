//! A custom resource: what its definition says of it.

use std::sync::Arc;

use restow_apiserver::CustomResource;
use restow_core::resource::{GroupResource, GroupVersion};
use serde_json::Value;

use crate::failure::{Cause, Failure};
use crate::registry::{Nature, Resource, ServedVersion};

/// What the definition of a custom resource says.
#[derive(Debug)]
pub struct Custom {
    /// The definition itself.
    pub definition: Value,
    group: String,
    versions: Vec<Version>,
    webhook: bool,
    writer: CustomResource,
}

#[derive(Debug)]
struct Version {
    name: String,
    selectable: Vec<String>,
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The resource that a definition makes; none if it stores nothing.
pub fn resource(definition: &Value, writer: CustomResource) -> Option<Resource> {
    let spec = &definition["spec"];
    let names = &definition["status"]["acceptedNames"];
    let group = text(spec, "group");
    let versions = spec["versions"].as_array()?;
    let stored = versions.iter().find(|version| version["storage"] == true)?;
    let mut served: Vec<ServedVersion> =
        versions.iter().filter(|version| version["served"] == true).map(served).collect();
    served.sort_by_cached_key(|version| std::cmp::Reverse(crate::discovery::priority(&version.name)));
    let custom = Custom {
        group: group.to_owned(),
        versions: versions.iter().map(version).collect(),
        webhook: spec["conversion"]["strategy"] == "Webhook",
        writer,
        definition: definition.clone(),
    };
    Some(Resource {
        name: GroupResource::new(group, text(names, "plural")),
        kind: text(names, "kind").to_owned(),
        list_kind: text(names, "listKind").to_owned(),
        singular: text(names, "singular").to_owned(),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        versions: served,
        stored: GroupVersion::new(group, text(stored, "name")),
        prefix: format!("/registry/{group}/{}/", text(names, "plural")),
        nature: Nature::Custom(Arc::new(custom)),
    })
}

fn served(version: &Value) -> ServedVersion {
    let subresources = version["subresources"].as_object().into_iter().flatten();
    ServedVersion {
        name: text(version, "name").to_owned(),
        subresources: subresources.map(|(name, _)| name.clone()).filter(|name| name == "status").collect(),
    }
}

fn version(version: &Value) -> Version {
    let fields = version["selectableFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    Version {
        name: text(version, "name").to_owned(),
        selectable: fields.iter().map(|field| text(field, "jsonPath").to_owned()).collect(),
    }
}

impl Custom {
    /// Lets writes in, one version at a time.
    pub fn writer(&self) -> &CustomResource {
        &self.writer
    }

    /// The versions that can be read from the store.
    pub fn decodable(&self) -> Vec<GroupVersion> {
        self.versions.iter().map(|version| GroupVersion::new(&self.group, &version.name)).collect()
    }

    /// Whether a webhook converts its objects.
    pub fn has_webhook(&self) -> bool {
        self.webhook
    }

    /// The fields of a version that can be selected by.
    pub fn selectable(&self, version: &str) -> &[String] {
        self.version(version).map(|version| version.selectable.as_slice()).unwrap_or_default()
    }

    /// The schema of a version, as it was given.
    pub fn schema(&self, version: &str) -> Value {
        let versions = self.definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = versions.iter().find(|own| own["name"] == version);
        found.map(|own| own["schema"]["openAPIV3Schema"].clone()).unwrap_or_default()
    }

    /// Completes an object that was stored: without what the version does not know, with its defaults.
    pub fn complete(&self, _version: &str, _object: &mut Value) {}

    /// Takes an object that was sent: the paths of what the version does not know, which is dropped.
    pub fn adopt(&self, _version: &str, _object: &mut Value) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    /// What is wrong with an object.
    pub fn validate(&self, _version: &str, _object: &Value, _old: Option<&Value>) -> Vec<Cause> {
        Vec::new()
    }

    fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }
}
