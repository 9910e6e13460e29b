//! For operators: at start-up, register your CRDs, and migrate, verify and prune what is stored.
//!
//! An operator that stores its objects in a new version has to rewrite the old ones before it can drop the old version.
//! These few lines do that, while the operator leads:
//!
//! ```no_run
//! use restow_lease::Stop;
//! use restow_operator::Crds;
//! # use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
//!
//! # async fn example(definition: CustomResourceDefinition, leading: Stop) -> Result<(), Box<dyn std::error::Error>> {
//! let crds = Crds::new(kube::Config::infer().await?, [definition])?;
//! crds.run(&leading).await;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | [`Crds`] | registers and migrates CRDs; run it in the background when the operator leads |
//! | [`Metrics`] | the progress, for the operator's own registry |
//! | [`permissions`] | the roles that all of this needs, for just these CRDs |
//!
//! It is safe to run again: objects that are stored in the storage version cost no write. Progress is not kept between
//! two runs for the same reason. What API servers agree on, how objects are written and when a run is verified is the
//! same as in `restow migrate`.

mod crds;
mod metrics;
mod permissions;
mod progress;
mod registration;

pub use crds::{Crds, CrdsError, Outcome};
pub use metrics::Metrics;
pub use permissions::{Permissions, permissions};
pub use registration::RegistrationError;
