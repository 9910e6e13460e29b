//! An example of an aggregated API server that supports storage version migration.
//!
//! It serves ships (`fleet.example.com`, in v1 and v2) behind a kube-apiserver, and stores them in a version that is
//! chosen when it starts. It uses `restow-storageversion` in [`server`] (identity, registration, readiness, collector) and
//! in [`handler`] (the gate around writes). What makes a rewrite possible is in [`ships`]: a patch that changes nothing is
//! stored exactly if the stored bytes would change.
//!
//! A request takes this way: [`server`] accepts the connection with [`tls`], [`handler`] asks the [`delegation`] which
//! [`user`] sends it (the [`front_proxy`] says so) and whether they may, passes the gate, and lets [`ships`] read and write by
//! the [`rules`]. [`ship`] converts between versions, [`representation`] and [`watching`] show objects, [`error`] shows errors.
#![allow(clippy::disallowed_methods)] // an example needs no simulated clock

pub mod answer;
pub mod certificate;
pub mod delegation;
pub mod discovery;
pub mod error;
pub mod front_proxy;
pub mod handler;
pub mod manifests;
pub mod representation;
pub mod request;
pub mod rules;
pub mod server;
pub mod ship;
pub mod ships;
pub mod tls;
pub mod user;
pub mod watching;
