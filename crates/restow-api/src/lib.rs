//! The API types of restow: `migration.k8s.io/v1alpha1`, the API of kube-storage-version-migrator with additional optional
//! fields; Conversion of `restow.dev/v1alpha1`; the reasons of conditions and Events; and the CRDs.
//!
//! ```
//! use kube_core::CustomResourceExt as _;
//!
//! assert_eq!(restow_api::StorageVersionMigration::crd().metadata.name.as_deref(),
//!            Some("storageversionmigrations.migration.k8s.io"));
//! ```

#![allow(unreachable_pub, reason = "KubeSchema repeats the types inside functions")]

mod conversion;
mod definitions;
mod in_tree;
mod labels;
mod migration;
mod reason;
mod resource;
mod state;

pub use conversion::{
    Conversion, ConversionCheck, ConversionConditionType, ConversionSpec, ConversionStatus, InPlaceProgress,
    RefusedObject,
};
pub use definitions::{conversion_crd, crds};
pub use in_tree::{
    IN_TREE_VERSIONS, InTreeMigration, InTreeMigrationSpec, InTreeMigrationStatus, in_tree_crd,
};
pub use labels::{
    ADOPTED, ADOPTED_AT, CONVERSION, CONVERTED, CONVERTING, CREATED_BY, DELEGATED_RUN, MANAGED_BY, MANAGER,
    RETIRED, RETRY, SUSPENDED_BY, TRIGGER,
};
pub use migration::{
    Checkpoint, ConditionStatus, ConditionType, MigrationCondition, MigrationProgress, QuarantinedObject,
    StorageVersionMigration, StorageVersionMigrationSpec, StorageVersionMigrationStatus,
};
pub use reason::{Reason, UnknownReason};
pub use resource::{GroupResource, GroupVersionResource};
pub use state::{PendingMigration, StorageState, StorageStateSpec, StorageStateStatus, UNKNOWN};
