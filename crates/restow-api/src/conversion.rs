//! Conversion: a request to move a custom resource from one version to another, and its progress.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labels::RETRY;
use crate::migration::{MigrationProgress, QuarantinedObject};

/// Which kind to move from which version to which one.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self.oldVersion != self.newVersion").message("oldVersion and newVersion are the same"),
    // Several short rules: servers limit how deep a rule may be.
    validation = Rule::new("self.group == oldSelf.group && self.kind == oldSelf.kind \
        && self.oldVersion == oldSelf.oldVersion && self.newVersion == oldSelf.newVersion")
        .message("only spec.suspend can be changed: create another Conversion"),
    // `namespace` is a reserved word of CEL.
    validation = Rule::new("has(self.__namespace__) == has(oldSelf.__namespace__) \
        && (!has(self.__namespace__) || self.__namespace__ == oldSelf.__namespace__)")
        .message("only spec.suspend can be changed: create another Conversion"),
    validation = Rule::new("has(self.selector) == has(oldSelf.selector) \
        && (!has(self.selector) || self.selector == oldSelf.selector)")
        .message("only spec.suspend can be changed: create another Conversion"),
    validation = Rule::new("has(self.stopServing) == has(oldSelf.stopServing) \
        && (!has(self.stopServing) || self.stopServing == oldSelf.stopServing)")
        .message("only spec.suspend can be changed: create another Conversion"),
    validation = Rule::new("has(self.convertInPlace) == has(oldSelf.convertInPlace) \
        && (!has(self.convertInPlace) || self.convertInPlace == oldSelf.convertInPlace)")
        .message("only spec.suspend can be changed: create another Conversion"),
    validation = Rule::new("has(self.changeManagedDefinition) == has(oldSelf.changeManagedDefinition) \
        && (!has(self.changeManagedDefinition) || self.changeManagedDefinition == oldSelf.changeManagedDefinition)")
        .message("only spec.suspend can be changed: create another Conversion"),
)]
#[kube(
    crates(kube_core = "::kube_core"),
    group = "restow.dev",
    version = "v1alpha1",
    kind = "Conversion",
    plural = "conversions",
    singular = "conversion",
    shortname = "cnv",
    category = "storage-migration",
    derive = "PartialEq",
    derive = "Default",
    status = "ConversionStatus",
    doc = "Conversion moves the stored objects of a custom resource from one version to another: it checks that \
           nothing would be lost, sets the storage version, rewrites and verifies all objects, and prunes storedVersions.",
    printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.kind"}"#,
    printcolumn = r#"{"name":"Group","type":"string","jsonPath":".spec.group","priority":1}"#,
    printcolumn = r#"{"name":"Old","type":"string","jsonPath":".spec.oldVersion"}"#,
    printcolumn = r#"{"name":"New","type":"string","jsonPath":".spec.newVersion"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Step","type":"string","jsonPath":".status.step"}"#,
    printcolumn = r#"{"name":"Progress","type":"string","jsonPath":".status.progress.percent"}"#,
    printcolumn = r#"{"name":"Refused","type":"integer","jsonPath":".status.check.refused","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct ConversionSpec {
    /// The API group of the kind, such as example.com.
    pub group: String,
    /// The kind, such as Widget. It must be defined by a CustomResourceDefinition.
    pub kind: String,
    /// The version that objects are stored in now. To roll back, name the newer version here.
    pub old_version: String,
    /// The version that objects are to be stored in. It must be served.
    pub new_version: String,
    /// Try it on the objects of this namespace only. The definition is not changed, and nothing is rewritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Try it on the objects with these labels only. The definition is not changed, and nothing is rewritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// If true, the old version is no longer served at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_serving: Option<bool>,
    /// If true, and no webhook converts, restow converts the objects by ConversionRules. Fields are lost if another client
    /// writes such an object meanwhile, through any version: with this, you state that nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convert_in_place: Option<bool>,
    /// If true, the definition is changed although Helm, Argo CD or Flux manages it. Otherwise the Conversion waits until the
    /// change arrives from their source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_managed_definition: Option<bool>,
    /// If true, the conversion stops within a page. It resumes from there when this is false or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

/// The progress and the result of a conversion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversionStatus {
    /// The generation that the controller has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The latest observations: Running, Succeeded and Failed, and for the steps that were taken Checked,
    /// StorageVersionSet, ConvertedInPlace, Rewritten, Verified, Pruned and ServingStopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The conditions as one word: Waiting, Suspended, Running, Succeeded or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What is being done: Checking, SettingStorageVersion, ConvertingInPlace, Rewriting, Verifying, Pruning or
    /// StoppingServing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The resource of the kind, such as widgets.example.com.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// How many objects were checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<ConversionCheck>,
    /// The check after the storage version was set: of the objects that were written since the first check, or of all if the
    /// definition was changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recheck: Option<ConversionCheck>,
    /// The first 100 objects that would not survive the conversion; `check.refused` and `recheck.refused` count all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedObject>,
    /// The uid and generation of the CustomResourceDefinition since which the new version is the storage version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// The value of the annotation restow.dev/retry that this attempt follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried: Option<String>,
    /// How many objects were converted by rules, if no webhook converts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlaceProgress>,
    /// The name of the migration that rewrites and verifies the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<String>,
    /// The progress of that migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<MigrationProgress>,
    /// The first 100 objects that could not be rewritten; `progress.quarantined` counts all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quarantined: Vec<QuarantinedObject>,
}

/// How far the check is: every object is converted to the new version and back, and compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversionCheck {
    /// The uid and generation of the CustomResourceDefinition that was checked.
    pub definition: String,
    /// What converted the objects: webhook, rules (in place), none (only pruned), or unchanged (all schemas are the same).
    pub converter: String,
    /// The number of objects checked.
    #[schemars(with = "i64")]
    pub objects: u64,
    /// The number of objects that would not survive.
    #[schemars(with = "i64")]
    pub refused: u64,
    /// The resourceVersion at which the check began: an object with a greater one was written since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The continue token of the next page; absent at the beginning and at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
    /// Whether all objects were checked.
    #[serde(default)]
    pub completed: bool,
    /// When the check began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
}

/// How far a conversion by rules is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceProgress {
    /// The number of objects converted.
    #[schemars(with = "i64")]
    pub converted: u64,
    /// The number of objects that could not be converted; the first 100 are in `quarantined`.
    #[schemars(with = "i64")]
    pub left: u64,
    /// The continue token of the next page; absent at the beginning and at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
}

/// An object that would not survive the conversion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedObject {
    /// The namespace of the object; absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The uid of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The fields that would not come back as they were; empty if the object cannot be converted at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// What would be lost, or why the object cannot be converted.
    pub message: String,
}

/// The type of a condition of a Conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversionConditionType {
    /// It is being carried out.
    Running,
    /// Every step is done.
    Succeeded,
    /// It ended without success.
    Failed,
    /// All objects survive the way to the new version and back.
    Checked,
    /// The new version is the storage version.
    StorageVersionSet,
    /// All objects were converted by rules.
    ConvertedInPlace,
    /// All objects were rewritten.
    Rewritten,
    /// A second pass has found all objects stored in the new version.
    Verified,
    /// storedVersions has only the new version.
    Pruned,
    /// The old version is no longer served.
    ServingStopped,
}

impl ConversionConditionType {
    /// The name in objects.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Checked => "Checked",
            Self::StorageVersionSet => "StorageVersionSet",
            Self::ConvertedInPlace => "ConvertedInPlace",
            Self::Rewritten => "Rewritten",
            Self::Verified => "Verified",
            Self::Pruned => "Pruned",
            Self::ServingStopped => "ServingStopped",
        }
    }
}

impl ConversionStatus {
    /// The condition of a type.
    pub fn condition(&self, type_: ConversionConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_.name())
    }

    /// Whether a condition is True.
    pub fn is(&self, type_: ConversionConditionType) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status == "True")
    }

    /// Whether it has succeeded or failed.
    pub fn is_finished(&self) -> bool {
        self.is(ConversionConditionType::Succeeded) || self.is(ConversionConditionType::Failed)
    }
}

impl ConversionSpec {
    /// Whether it is only tried on a part of the objects.
    pub fn is_trial(&self) -> bool {
        self.namespace.is_some() || self.selector.is_some()
    }

    /// Whether a user has suspended it.
    pub fn is_suspended(&self) -> bool {
        self.suspend.unwrap_or(false)
    }
}

impl Conversion {
    /// Whether it has succeeded or failed, and no retry was requested since.
    pub fn is_finished(&self) -> bool {
        self.status.as_ref().is_some_and(ConversionStatus::is_finished) && self.retry().is_none()
    }

    /// The value of the annotation that requests a retry, if it failed and this value was not followed yet.
    pub fn retry(&self) -> Option<&str> {
        let status = self.status.as_ref().filter(|status| status.is(ConversionConditionType::Failed))?;
        let requested = self.metadata.annotations.as_ref()?.get(RETRY)?;
        (status.retried.as_ref() != Some(requested)).then_some(requested)
    }
}

#[cfg(test)]
mod tests {
    use kube_core::CustomResourceExt as _;

    use super::*;

    #[test]
    fn the_crd_is_cluster_scoped_and_guards_its_spec() {
        let crd = Conversion::crd();
        assert_eq!(crd.metadata.name.as_deref(), Some("conversions.restow.dev"));
        assert_eq!(crd.spec.scope, "Cluster");
        let text = serde_json::to_string(&crd).unwrap();
        assert!(
            text.contains("only spec.suspend can be changed") && text.contains("__namespace__"),
            "{text}"
        );
        assert!(!text.contains("$ref"), "{text}");
    }

    #[test]
    fn a_failed_conversion_is_unfinished_when_another_retry_is_requested() {
        for (condition, requested, followed, unfinished) in [
            ("Failed", None, None, false),
            ("Failed", Some("1"), None, true),
            ("Failed", Some("1"), Some("1"), false),
            ("Failed", Some("2"), Some("1"), true),
            ("Succeeded", Some("1"), None, false),
        ] {
            let mut object: Conversion = serde_json::from_value(serde_json::json!({
                "metadata": {"name": "x"},
                "spec": {"group": "g", "kind": "K", "oldVersion": "v1", "newVersion": "v2"},
                "status": {"retried": followed, "conditions": [{
                    "type": condition, "status": "True", "reason": "R", "message": "",
                    "lastTransitionTime": "2026-11-15T12:00:00Z",
                }]},
            }))
            .unwrap();
            object.metadata.annotations =
                requested.map(|value: &str| [(RETRY.to_owned(), value.to_owned())].into());
            assert_eq!(!object.is_finished(), unfinished, "{condition} {requested:?} {followed:?}");
        }
    }

    #[test]
    fn a_conversion_with_a_namespace_or_a_selector_is_a_trial() {
        let spec = ConversionSpec::default();
        assert!(!spec.is_trial() && !spec.is_suspended());
        assert!(ConversionSpec { namespace: Some("a".to_owned()), ..spec.clone() }.is_trial());
        assert!(ConversionSpec { selector: Some(LabelSelector::default()), ..spec }.is_trial());
    }
}
