//! An aggregated API server that takes part in storage version migration: an example to start from.
//!
//! It serves ships (`fleet.example.com`, in v1 and v2) behind a kube-apiserver, and stores them in a version that is
//! chosen when it starts. What `restow-storageversion` adds to it is in [`server`] (identity, registration, readiness,
//! collector) and [`handler`] (the gate around writes); what makes a rewrite possible at all is in [`ships`]: a write
//! that changes nothing is stored just when the bytes would be others.
//!
//! The way of a request: [`server`] takes the connection through the [`door`], [`handler`] asks [`user`] who sends it
//! (the [`front_proxy`] says so) and whether they may, passes the gate, and has [`ships`] read and write by the
//! [`rules`]. [`ship`] converts between versions, [`form`] and [`watching`] show objects, [`failure`] what went wrong.
#![allow(clippy::disallowed_methods)] // an example needs no simulated clock

pub mod answer;
pub mod certificate;
pub mod discovery;
pub mod door;
pub mod failure;
pub mod form;
pub mod front_proxy;
pub mod handler;
pub mod manifests;
pub mod request;
pub mod rules;
pub mod server;
pub mod ship;
pub mod ships;
pub mod user;
pub mod watching;
