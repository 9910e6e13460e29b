//! StorageVersionMigration of `storagemigration.k8s.io`, the API of the migrator that comes with Kubernetes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::CustomResourceExt as _;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::migration::ConditionType;
use crate::resource::GroupResource;

/// Which resource to migrate.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[kube(
    crates(kube_core = "::kube_core"),
    group = "storagemigration.k8s.io",
    version = "v1",
    kind = "StorageVersionMigration",
    root = "InTreeMigration",
    plural = "storageversionmigrations",
    singular = "storageversionmigration",
    derive = "PartialEq",
    derive = "Default",
    status = "InTreeMigrationStatus",
    doc = "StorageVersionMigration represents a migration of stored data to the latest storage version.",
    annotation(
        "api-approved.kubernetes.io",
        "unapproved, the API of the migrator of Kubernetes, for clusters that do not serve it"
    ),
    printcolumn = r#"{"name":"Resource","type":"string","jsonPath":".spec.resource.resource"}"#,
    printcolumn = r#"{"name":"Group","type":"string","jsonPath":".spec.resource.group"}"#,
    printcolumn = r#"{"name":"Succeeded","type":"string","jsonPath":".status.conditions[?(@.type==\"Succeeded\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct InTreeMigrationSpec {
    /// The resource to migrate. Immutable.
    #[x_kube(
        validation = Rule::new("self == oldSelf").message("spec.resource is immutable: create another migration"),
        validation = Rule::new("has(self.resource) && self.resource != ''").message("resource is required")
    )]
    pub resource: GroupResource,
}

/// The progress and the result of a migration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InTreeMigrationStatus {
    /// The latest observations of the migration: Running, Succeeded, Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The resourceVersion of the resource's list when the controller first observed the migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

impl InTreeMigrationStatus {
    /// The condition of a type.
    pub fn condition(&self, type_: ConditionType) -> Option<&Condition> {
        let name = type_.name();
        self.conditions.iter().find(|condition| condition.type_ == name)
    }

    /// Whether a condition is True.
    pub fn is(&self, type_: ConditionType) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status == "True")
    }

    /// Whether it has succeeded or failed.
    pub fn is_finished(&self) -> bool {
        self.is(ConditionType::Succeeded) || self.is(ConditionType::Failed)
    }
}

/// The versions of the API with this schema, the preferred one first.
pub const IN_TREE_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The CRD, for clusters that do not serve the API: v1 is stored, v1beta1 has the same schema.
pub fn in_tree_crd() -> CustomResourceDefinition {
    let mut crd = InTreeMigration::crd();
    let mut versions = Vec::new();
    for version in &crd.spec.versions {
        for name in IN_TREE_VERSIONS {
            let mut version = version.clone();
            version.storage = name == version.name;
            version.name = name.to_owned();
            versions.push(version);
        }
    }
    crd.spec.versions = versions;
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crd_serves_both_versions_with_one_schema() {
        let crd = in_tree_crd();
        assert_eq!(crd.metadata.name.as_deref(), Some("storageversionmigrations.storagemigration.k8s.io"));
        let annotations = crd.metadata.annotations.unwrap();
        assert!(annotations["api-approved.kubernetes.io"].starts_with("unapproved, "));
        let shown: Vec<(&str, bool, bool)> =
            crd.spec.versions.iter().map(|v| (v.name.as_str(), v.served, v.storage)).collect();
        assert_eq!(shown, [("v1", true, true), ("v1beta1", true, false)]);
        assert_eq!(crd.spec.versions[0].schema, crd.spec.versions[1].schema);
        let subresources = |index: usize| crd.spec.versions[index].subresources.as_ref();
        assert!((0..2).all(|index| subresources(index).is_some_and(|sub| sub.status.is_some())));
    }

    /// A migration that kube-controller-manager 1.36.3 has completed.
    #[test]
    fn objects_of_a_real_server_round_trip() {
        let text = r#"{"apiVersion":"storagemigration.k8s.io/v1beta1","kind":"StorageVersionMigration",
            "metadata":{"creationTimestamp":"2026-11-15T13:30:20Z","name":"d","resourceVersion":"311",
                        "uid":"88754848-0e25-4987-bf44-f49b83293c68"},
            "spec":{"resource":{"group":"example.com","resource":"widgets"}},
            "status":{"conditions":[
                {"lastTransitionTime":"2026-11-15T13:30:25Z","message":"Migration completed",
                 "reason":"MigrationCompleted","status":"False","type":"Running"},
                {"lastTransitionTime":"2026-11-15T13:30:25Z","message":"",
                 "reason":"StorageVersionMigrationSucceeded","status":"True","type":"Succeeded"}],
              "resourceVersion":"306"}}"#;
        let migration: InTreeMigration = serde_json::from_str(text).unwrap();
        let status = migration.status.as_ref().unwrap();
        assert!(status.is(ConditionType::Succeeded) && !status.is(ConditionType::Running));
        assert!(status.is_finished() && status.condition(ConditionType::Failed).is_none());
        let before: serde_json::Value = serde_json::from_str(text).unwrap();
        let after = serde_json::to_value(&migration).unwrap();
        assert_eq!((&after["spec"], &after["status"]), (&before["spec"], &before["status"]));
    }
}
