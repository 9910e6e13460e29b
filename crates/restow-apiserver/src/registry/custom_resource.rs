//! A CustomResourceDefinition that is served.

use restow_core::resource::name::GroupVersion;
use restow_storageversion::CustomResource;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::http::status::Cause;
use crate::object::meta::Endpoint;
use crate::object::table::column::Column;
use crate::registry::definition::{Conversion, Definition, Version};

/// A custom resource of this server.
#[derive(Debug)]
pub(crate) struct ServedDefinition {
    /// Its definition, as it is stored.
    pub object: Value,
    /// The parsed definition.
    pub definition: Definition,
    writer: CustomResource,
    superseded: CancellationToken,
}

impl ServedDefinition {
    /// The custom resource of a definition, which may be the same one as before.
    pub(crate) fn new(
        object: &Value,
        definition: Definition,
        writer: CustomResource,
        before: Option<&ServedDefinition>,
    ) -> Self {
        let same = before.filter(|before| before.is_defined_by(object));
        let superseded = same.map(|before| before.superseded.clone()).unwrap_or_default();
        Self { object: object.clone(), definition, writer, superseded }
    }

    /// Lets writes in, one version at a time.
    pub(crate) fn writer(&self) -> &CustomResource {
        &self.writer
    }

    /// Whether an object defines the resource just as this does: its status and metadata may be others.
    fn is_defined_by(&self, object: &Value) -> bool {
        self.object["spec"] == object["spec"]
            && self.object["status"]["acceptedNames"] == object["status"]["acceptedNames"]
    }

    /// Notifies users of this definition, such as watches, that it is replaced.
    pub(crate) fn supersede(&self, by: Option<&ServedDefinition>) {
        if !by.is_some_and(|by| self.is_defined_by(&by.object)) {
            self.superseded.cancel();
        }
    }

    /// Completes when the definition has changed or is deleted.
    pub(crate) async fn superseded(&self) {
        self.superseded.cancelled().await;
    }

    /// The versions that can be read from the store.
    pub(crate) fn decodable(&self) -> Vec<GroupVersion> {
        let version = |version: &Version| GroupVersion::new(&self.definition.group, &version.name);
        self.definition.versions.iter().map(version).collect()
    }

    /// Whether a webhook converts its objects.
    pub(crate) fn has_webhook(&self) -> bool {
        matches!(self.definition.conversion, Conversion::Webhook { .. })
    }

    /// The fields of a version that can be selected by.
    pub(crate) fn selectable(&self, version: &str) -> &[String] {
        self.version(version).map(|version| version.selectable_fields.as_slice()).unwrap_or_default()
    }

    /// The columns of a table of a version, beside the name.
    pub(crate) fn columns(&self, version: &str) -> &[Column] {
        self.version(version).map(|version| version.columns.as_slice()).unwrap_or_default()
    }

    /// The schema of a version for field managers.
    pub(crate) fn apply_schema(&self, version: &str) -> Option<&restow_apply::Schema> {
        self.version(version).map(|version| &version.apply)
    }

    /// The schema of a version, as it was given.
    pub(crate) fn schema(&self, version: &str) -> Value {
        let versions = self.object["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = versions.iter().find(|own| own["name"] == version);
        found.map(|own| own["schema"]["openAPIV3Schema"].clone()).unwrap_or_default()
    }

    /// The warning to clients that use a version.
    pub(crate) fn warning(&self, version: &str) -> Option<&str> {
        self.version(version)?.deprecation_warning.as_deref()
    }

    /// Sets the defaults of its storage version in a stored object.
    pub(crate) fn set_defaults(&self, object: &mut Value) {
        let stored = object["apiVersion"].as_str().unwrap_or_default();
        let name = stored.rsplit('/').next().unwrap_or_default();
        if let Some(version) = self.version(name) {
            version.schema.set_defaults(object);
        }
    }

    /// Prunes fields that a version does not have.
    pub(crate) fn prune(&self, version: &str, object: &mut Value) {
        if let Some(version) = self.version(version).filter(|_| !self.definition.preserve_unknown) {
            version.schema.prune(object);
        }
    }

    /// Prunes and defaults a sent object. Returns the paths of the pruned fields.
    pub(crate) fn prune_and_default(&self, version: &str, object: &mut Value) -> Vec<String> {
        let Some(version) = self.version(version) else { return Vec::new() };
        let unknown =
            if self.definition.preserve_unknown { Vec::new() } else { version.schema.prune(object) };
        version.schema.set_defaults(object);
        unknown
    }

    /// Prunes and defaults an object that a configuration was merged into. Nulls are kept, and refused if they are not allowed.
    pub(crate) fn default_applied(&self, version: &str, object: &mut Value) {
        self.prune(version, object);
        if let Some(version) = self.version(version) {
            version.schema.set_missing(object);
        }
    }

    /// The errors of an object, given the old one.
    pub(crate) fn validate(
        &self,
        version: &str,
        endpoint: Endpoint,
        object: &Value,
        old: Option<&Value>,
    ) -> Vec<Cause> {
        let Some(version) = self.version(version) else { return Vec::new() };
        match (old, endpoint) {
            (None, _) => version.schema.check_create(object),
            (Some(old), Endpoint::Main) => version.schema.check_update(object, old),
            (Some(old), Endpoint::Status) => version.schema.check_status(object, old),
        }
    }

    fn version(&self, name: &str) -> Option<&Version> {
        self.definition.versions.iter().find(|version| version.name == name)
    }
}
