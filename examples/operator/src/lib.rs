//! A complete small operator with three versions of one kind, to start from.
//!
//! A Page is a small web page. The operator writes it into a ConfigMap, and its address into the status. Over time the API
//! has changed:
//!
//! | | [`v1alpha1`] | [`v1beta1`] | [`v1`] |
//! |---|---|---|---|
//! | renamed | `heading` | `title` | `title` |
//! | removed | `blink` | | |
//! | split | `address` | `address` | `host`, `port` |
//! | added | | | `language` |
//!
//! Each version's module knows its older neighbour and no other one. [`chain`] makes a converter of them. The controller
//! reads and writes the newest version only ([`controller`], [`page`]). The program (`main.rs`) serves the conversion and an admission
//! handler ([`admission`]) on one port, and while it leads, it registers the CRD and migrates what is stored ([`setup`]).
//!
//! ```
//! use restow_convert::Convertible as _;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let chain = operator::chain(&operator::definition("v1")?)?;
//! let old = serde_json::json!({
//!     "apiVersion": "example.com/v1alpha1", "kind": "Page", "metadata": {"name": "pets"},
//!     "spec": {"heading": "Pets", "address": "www.example.com:8080", "blink": true},
//! });
//! let new = chain.convert(old.clone(), "v1")?;
//! assert_eq!(new["spec"]["host"], "www.example.com");
//! // Nothing blinks in v1. It is kept in an annotation, and restored.
//! assert_eq!(chain.convert(new, "v1alpha1")?, old);
//! # Ok(())
//! # }
//! ```

pub mod admission;
pub mod controller;
pub mod page;
pub mod setup;
pub mod status;
pub mod v1;
pub mod v1alpha1;
pub mod v1beta1;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;
use kube_core::crd::{MergeError, merge_crds};
use restow_convert::{Chain, ChainError};

/// The name of the operator: of its Lease, its roles and its admission configuration.
pub const NAME: &str = "page-operator";

/// The definition of all three versions. Objects are stored in `storage`.
///
/// # Errors
/// When there is no such version.
pub fn definition(storage: &str) -> Result<CustomResourceDefinition, MergeError> {
    merge_crds(vec![v1::Page::crd(), v1beta1::Page::crd(), v1alpha1::Page::crd()], storage)
}

/// Converts pages between all versions.
///
/// # Errors
/// When the versions do not make a chain, which a test excludes.
pub fn chain(definition: &CustomResourceDefinition) -> Result<Chain, ChainError> {
    let chain = Chain::oldest::<v1alpha1::Page>().then::<v1beta1::Page>().then::<v1::Page>();
    chain.definition(definition).build()
}
