//! The objects that migrations are asked for and told of with: `migration.k8s.io/v1alpha1`, as
//! kube-storage-version-migrator has them, with optional fields added.
//!
//! ```
//! use kube_core::CustomResourceExt as _;
//!
//! assert_eq!(restow_api::StorageVersionMigration::crd().metadata.name.as_deref(),
//!            Some("storageversionmigrations.migration.k8s.io"));
//! ```

#![allow(unreachable_pub, reason = "KubeSchema repeats the types inside of functions")]

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

/// The label of what restow made by itself, with the value [`MANAGER`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Who restow is, in labels, Leases and Events.
pub const MANAGER: &str = "restow";
/// The annotation that asks for one more try of what a migration left; it is taken away when that begins.
pub const RETRY: &str = "restow.dev/retry";

/// The label of what the trigger creates, with the value [`TRIGGER`]. Other objects that restow makes do not have it.
pub const CREATED_BY: &str = "restow.dev/created-by";
/// The trigger, as the value of [`CREATED_BY`].
pub const TRIGGER: &str = "trigger";

/// The label of a migration that was made to serve one of the built-in API.
pub const ADOPTED: &str = "restow.dev/adopted";
/// The annotation of such a migration with the resourceVersion of the resource's list when it was made.
pub const ADOPTED_AT: &str = "restow.dev/adopted-at";
/// The annotation of a migration that was handed to the built-in controller: which run of ours it is for.
pub const DELEGATED_RUN: &str = "restow.dev/delegated-run";

/// The definitions of both, ready to be installed.
pub fn crds()
-> [k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition; 2] {
    use kube_core::CustomResourceExt as _;
    [StorageVersionMigration::crd(), StorageState::crd()]
}
