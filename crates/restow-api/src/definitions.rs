//! The CustomResourceDefinitions of `migration.k8s.io` and of Conversion.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;

use crate::conversion::Conversion;
use crate::migration::StorageVersionMigration;
use crate::state::StorageState;

/// The CRDs of StorageVersionMigration and StorageState.
pub fn crds() -> [CustomResourceDefinition; 2] {
    [StorageVersionMigration::crd(), StorageState::crd()]
}

/// The CRD of Conversion.
pub fn conversion_crd() -> CustomResourceDefinition {
    Conversion::crd()
}
