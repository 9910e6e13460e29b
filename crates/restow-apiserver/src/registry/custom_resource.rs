//! A custom resource: what its definition says of it.

use restow_core::resource::name::GroupVersion;
use restow_storageversion::CustomResource;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::http::status::Cause;
use crate::object::meta::Endpoint;
use crate::object::schema::Schema;
use crate::object::table::column::Column;
use crate::registry::definition::{Conversion, Definition, Version};

/// A custom resource of this server.
#[derive(Debug)]
pub(crate) struct ServedDefinition {
    /// Its definition, as it is stored.
    pub object: Value,
    /// What that says.
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

    /// Tells those who work by this definition, such as watches, that it is no longer the one to go by.
    pub(crate) fn supersede(&self, by: Option<&ServedDefinition>) {
        if !by.is_some_and(|by| self.is_defined_by(&by.object)) {
            self.superseded.cancel();
        }
    }

    /// Ends when the definition has changed or gone.
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

    /// The schema of a version, as it is gone by.
    pub(crate) fn structure(&self, version: &str) -> Option<&Schema> {
        self.version(version).map(|version| &version.schema)
    }

    /// The schema of a version, as it was given.
    pub(crate) fn schema(&self, version: &str) -> Value {
        let versions = self.object["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = versions.iter().find(|own| own["name"] == version);
        found.map(|own| own["schema"]["openAPIV3Schema"].clone()).unwrap_or_default()
    }

    /// What clients that use a version are to be told.
    pub(crate) fn warning(&self, version: &str) -> Option<&str> {
        self.version(version)?.deprecation_warning.as_deref()
    }

    /// Completes an object that was stored with the defaults of the version it is stored in.
    pub(crate) fn complete(&self, object: &mut Value) {
        let stored = object["apiVersion"].as_str().unwrap_or_default();
        let name = stored.rsplit('/').next().unwrap_or_default();
        if let Some(version) = self.version(name) {
            version.schema.fill(object);
        }
    }

    /// Drops what a version does not know of an object that is shown in it.
    pub(crate) fn cut(&self, version: &str, object: &mut Value) {
        if let Some(version) = self.version(version).filter(|_| !self.definition.preserve_unknown) {
            version.schema.prune(object);
        }
    }

    /// Takes an object that was sent: the paths of what the version does not know, which is dropped.
    pub(crate) fn adopt(&self, version: &str, object: &mut Value) -> Vec<String> {
        let Some(version) = self.version(version) else { return Vec::new() };
        let unknown =
            if self.definition.preserve_unknown { Vec::new() } else { version.schema.prune(object) };
        version.schema.fill(object);
        unknown
    }

    /// What is wrong with an object, given what it is to replace.
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
