//! A CustomResourceDefinition as a Conversion needs it, and the patches that change it.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_api::CONVERTING;
use serde_json::{Value, json};

use crate::controller::crd_manager::{CrdManager, crd_manager};
use crate::resource::name::GroupResource;

/// How the API servers convert objects between versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// They change apiVersion and drop the fields that the other version does not have.
    None,
    /// They ask a webhook.
    Webhook,
}

/// A version of a CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinedVersion {
    /// Its name, such as v1.
    pub name: String,
    /// Whether clients can use it.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
}

/// A CustomResourceDefinition, as far as it matters for a Conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The resource that it defines.
    pub name: GroupResource,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`, which counts changes of the spec.
    pub generation: i64,
    /// All versions, in the order of the spec.
    pub versions: Vec<DefinedVersion>,
    /// `status.storedVersions`.
    pub stored_versions: Vec<String>,
    /// Whether the API servers serve it.
    pub established: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// How objects are converted.
    pub strategy: Strategy,
    /// The conversion in place that has begun and not ended.
    pub converting: Option<InPlace>,
    /// The tool that keeps it as its source has it.
    pub manager: Option<CrdManager>,
}

/// A conversion in place, as the definition's annotation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// The version that objects are converted to.
    pub version: String,
    /// The resourceVersion at which it began: an object with a greater one was written since.
    pub since: u64,
}

impl InPlace {
    fn read(text: &str) -> Option<Self> {
        let (version, since) = text.split_once(' ')?;
        Some(Self { version: version.to_owned(), since: since.parse().ok()? })
    }
}

impl fmt::Display for InPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.version, self.since)
    }
}

impl Definition {
    /// Reads a CustomResourceDefinition.
    pub fn of(crd: &CustomResourceDefinition) -> Self {
        let status = crd.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let established = conditions.is_some_and(|conditions| {
            conditions.iter().any(|one| one.type_ == "Established" && one.status == "True")
        });
        let webhook = crd.spec.conversion.as_ref().is_some_and(|conversion| conversion.strategy == "Webhook");
        let version = |version: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion| DefinedVersion {
            name: version.name.clone(),
            served: version.served,
            storage: version.storage,
        };
        Self {
            name: GroupResource::new(&crd.spec.group, &crd.spec.names.plural),
            uid: crd.metadata.uid.clone().unwrap_or_default(),
            generation: crd.metadata.generation.unwrap_or_default(),
            versions: crd.spec.versions.iter().map(version).collect(),
            stored_versions: status.and_then(|status| status.stored_versions.clone()).unwrap_or_default(),
            established,
            deleting: crd.metadata.deletion_timestamp.is_some(),
            strategy: if webhook { Strategy::Webhook } else { Strategy::None },
            converting: crd
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| InPlace::read(annotations.get(CONVERTING)?)),
            manager: crd_manager(&json!({"metadata": crd.metadata})),
        }
    }

    /// Identifies this state of the definition by uid and generation.
    pub fn mark(&self) -> String {
        format!("{}/{}", self.uid, self.generation)
    }

    /// The version that new writes are stored in.
    pub fn storage_version(&self) -> &str {
        self.versions.iter().find(|version| version.storage).map_or("", |version| &version.name)
    }

    /// The version of a name.
    pub fn version(&self, name: &str) -> Option<&DefinedVersion> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The generation in a mark of this definition; none if the mark is of another one.
    pub(super) fn generation_of(&self, mark: &str) -> Option<i64> {
        let (uid, generation) = mark.split_once('/')?;
        (uid == self.uid).then(|| generation.parse().ok()).flatten()
    }
}

/// The merge patch that makes a version the storage version; none if the definition does not have it.
///
/// The whole list is sent as it was read, because a merge patch replaces lists. uid and resourceVersion are the
/// precondition that nobody has changed it since.
pub fn patch_storage(crd: &Value, version: &str) -> Option<Value> {
    patch_versions(crd, version, |one, is_it| {
        one["storage"] = Value::Bool(is_it);
    })
}

/// The merge patch that makes a version the storage version and says that objects are being converted in place.
pub fn patch_storage_in_place(crd: &Value, in_place: &InPlace) -> Option<Value> {
    let mut patch = patch_storage(crd, &in_place.version)?;
    patch["metadata"]["annotations"] = json!({CONVERTING: in_place.to_string()});
    Some(patch)
}

/// The merge patch that says that the conversion in place has ended.
pub fn patch_converted(crd: &Value) -> Option<Value> {
    let meta = &crd["metadata"];
    let (uid, resource_version) = (meta["uid"].as_str()?, meta["resourceVersion"].as_str()?);
    Some(json!({"metadata": {
        "uid": uid, "resourceVersion": resource_version, "annotations": {CONVERTING: null},
    }}))
}

/// The merge patch that serves a version, or no longer serves it; none if the definition does not have it.
pub fn patch_served(crd: &Value, version: &str, served: bool) -> Option<Value> {
    patch_versions(crd, version, |one, is_it| {
        if is_it {
            one["served"] = Value::Bool(served);
        }
    })
}

fn patch_versions(crd: &Value, version: &str, change: impl Fn(&mut Value, bool)) -> Option<Value> {
    let mut versions = crd["spec"]["versions"].as_array()?.clone();
    if !versions.iter().any(|one| one["name"] == version) {
        return None;
    }
    for one in &mut versions {
        let is_it = one["name"] == version;
        change(one, is_it);
    }
    let precondition = |field: &str| crd["metadata"][field].as_str().map(str::to_owned);
    let (uid, resource_version) = (precondition("uid")?, precondition("resourceVersion")?);
    Some(json!({
        "metadata": {"uid": uid, "resourceVersion": resource_version},
        "spec": {"versions": versions},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd() -> Value {
        json!({
            "metadata": {"name": "widgets.example.com", "uid": "u", "resourceVersion": "7", "generation": 3},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "fieldOfTomorrow": {"a": 1}},
                    {"name": "v2", "served": true, "storage": false},
                ],
            },
            "status": {
                "storedVersions": ["v1"],
                "conditions": [{"type": "Established", "status": "True", "lastTransitionTime": null, "reason": "", "message": ""}],
                "acceptedNames": {"plural": "widgets", "kind": "Widget"},
            },
        })
    }

    #[test]
    fn a_definition_is_read_with_its_versions() {
        let read = Definition::of(&serde_json::from_value(crd()).unwrap());
        assert_eq!((read.mark().as_str(), read.storage_version(), read.established), ("u/3", "v1", true));
        assert!(read.version("v2").is_some_and(|version| version.served && !version.storage));
        assert_eq!((read.strategy, read.deleting), (Strategy::None, false));
        assert_eq!((read.generation_of("u/2"), read.generation_of("other/2")), (Some(2), None));
    }

    #[test]
    fn the_tool_that_manages_a_definition_is_recognized() {
        let mut helm = crd();
        helm["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
        let tool =
            |crd: Value| Definition::of(&serde_json::from_value(crd).unwrap()).manager.map(|one| one.tool);
        assert_eq!((tool(crd()), tool(helm)), (None, Some("Helm")));
    }

    #[test]
    fn a_patch_keeps_everything_else_and_has_preconditions() {
        let patch = patch_storage(&crd(), "v2").unwrap();
        assert_eq!(
            patch,
            json!({
                "metadata": {"uid": "u", "resourceVersion": "7"},
                "spec": {"versions": [
                    {"name": "v1", "served": true, "storage": false, "fieldOfTomorrow": {"a": 1}},
                    {"name": "v2", "served": true, "storage": true},
                ]},
            })
        );
        let patch = patch_served(&crd(), "v1", false).unwrap();
        assert_eq!(patch["spec"]["versions"][0]["served"], false);
        assert_eq!(patch["spec"]["versions"][1]["served"], true);
        assert_eq!(patch["spec"]["versions"][0]["storage"], true);
    }

    #[test]
    fn a_conversion_in_place_is_marked_in_the_same_patch() {
        let in_place = InPlace { version: "v2".to_owned(), since: 41 };
        let patch = patch_storage_in_place(&crd(), &in_place).unwrap();
        assert_eq!(patch["metadata"]["annotations"], json!({"restow.dev/converting-in-place": "v2 41"}));
        assert_eq!(patch["spec"], patch_storage(&crd(), "v2").unwrap()["spec"]);
        let mut marked = crd();
        marked["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
        let read = Definition::of(&serde_json::from_value(marked.clone()).unwrap());
        assert_eq!(read.converting, Some(in_place));
        let patch = patch_converted(&marked).unwrap();
        assert_eq!(patch["metadata"]["annotations"], json!({"restow.dev/converting-in-place": null}));
    }

    #[test]
    fn no_patch_is_made_of_an_unknown_version_or_without_a_precondition() {
        assert_eq!(patch_storage(&crd(), "v3"), None);
        let mut unread = crd();
        unread["metadata"]["resourceVersion"] = Value::Null;
        assert_eq!(patch_storage(&unread, "v2"), None);
    }
}
