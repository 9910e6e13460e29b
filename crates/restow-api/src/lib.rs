//! The API types of restow: `migration.k8s.io/v1alpha1`, the API of kube-storage-version-migrator with additional optional
//! fields; the reasons of conditions and Events; and the CRDs.
//!
//! ```
//! use kube_core::CustomResourceExt as _;
//!
//! assert_eq!(restow_api::StorageVersionMigration::crd().metadata.name.as_deref(),
//!            Some("storageversionmigrations.migration.k8s.io"));
//! ```

#![allow(unreachable_pub, reason = "KubeSchema repeats the types inside functions")]

mod in_tree;
mod migration;
mod reason;
mod resource;
mod state;

pub use in_tree::{
    IN_TREE_VERSIONS, InTreeMigration, InTreeMigrationSpec, InTreeMigrationStatus, in_tree_crd,
};
pub use migration::{
    Checkpoint, ConditionStatus, ConditionType, MigrationCondition, MigrationProgress, QuarantinedObject,
    StorageVersionMigration, StorageVersionMigrationSpec, StorageVersionMigrationStatus,
};
pub use reason::{Reason, UnknownReason};
pub use resource::{GroupResource, GroupVersionResource};
pub use state::{PendingMigration, StorageState, StorageStateSpec, StorageStateStatus, UNKNOWN};

/// The label of objects that restow creates, with the value [`MANAGER`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The name of restow in labels, Leases and Events.
pub const MANAGER: &str = "restow";
/// The annotation that requests a retry of a failed migration; the controller removes it when the retry begins.
pub const RETRY: &str = "restow.dev/retry";

/// The label of objects that the trigger creates, with the value [`TRIGGER`].
pub const CREATED_BY: &str = "restow.dev/created-by";
/// The trigger, as the value of [`CREATED_BY`].
pub const TRIGGER: &str = "trigger";

/// The label of a migration that restow created for one of the built-in API.
pub const ADOPTED: &str = "restow.dev/adopted";
/// The annotation of such a migration with the resourceVersion of the resource's list when it was created.
pub const ADOPTED_AT: &str = "restow.dev/adopted-at";
/// The annotation of a migration delegated to the built-in controller, which identifies the run that it is for.
pub const DELEGATED_RUN: &str = "restow.dev/delegated-run";

/// The CRDs of StorageVersionMigration and StorageState.
pub fn crds()
-> [k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition; 2] {
    use kube_core::CustomResourceExt as _;
    [StorageVersionMigration::crd(), StorageState::crd()]
}
