//! For operators: at start-up, register your CRDs and their conversion, and migrate, verify and prune what is stored.
//!
//! An operator that stores its objects in a new version has to convert between its versions, and to rewrite the old objects before it
//! can drop the old version. These few lines do that: every replica serves the conversion, and the one that leads does the rest.
//!
//! ```no_run
//! use restow_lease::Election;
//! use restow_operator::{Crds, Webhook};
//! # use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
//! # use restow_convert::Chain;
//! # use tokio::net::TcpListener;
//! # use tokio_util::sync::CancellationToken;
//! # async fn controllers(_: &restow_lease::Stop) {}
//! # async fn example(
//! #     definition: CustomResourceDefinition, chain: Chain, election: Election, listener: TcpListener, stop: CancellationToken,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//!
//! let webhook = Webhook::service("pages", "page-operator").convert(chain);
//! let (crds, replica) = Crds::new(kube::Config::infer().await?, [definition])?.webhook(webhook)?;
//! let lead = election.lead(&stop, async |leading| {
//!     tokio::join!(crds.run(&leading), async {
//!         crds.registered().await;
//!         controllers(&leading).await;
//!     });
//! });
//! let (served, ()) = tokio::join!(replica.run(listener, stop.clone()), lead);
//! # served?;
//! # Ok(())
//! # }
//! ```
//!
//! | | what it has |
//! |---|---|
//! | [`Crds`] | registers and migrates CRDs; run it when the operator leads |
//! | [`Webhook`], [`Replica`] | converts their objects and serves the operator's own admission handlers; run it in every replica |
//! | [`definitions_from_yaml`] | CRDs from YAML; those of Rust types are `CustomResourceExt::crd()` |
//! | [`Metrics`] | the progress, on `/metrics` of the webhook or in the operator's own registry |
//! | [`permissions`] | the roles that all of this needs, for just these CRDs |
//!
//! It is safe to run again: objects that are stored in the storage version cost no write. Progress is not kept between
//! two runs for the same reason. What API servers agree on, how objects are written and when a run is verified is the
//! same as in `restow migrate`.

mod admission;
mod converted;
mod coverage;
mod crds;
mod definitions;
mod error;
mod gates;
mod metrics;
mod permissions;
mod progress;
mod register;
mod registration;
mod replicas;
mod served;
mod webhook;

pub use crds::{Crds, Outcome};
pub use definitions::{DefinitionsError, definitions_from_yaml};
pub use error::CrdsError;
pub use metrics::Metrics;
pub use permissions::{Permissions, permissions};
pub use registration::RegistrationError;
pub use webhook::{Replica, Webhook, WebhookError};
