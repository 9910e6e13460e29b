//! The controllers' parts, on a real control plane and over real connections.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod events;
mod serve;
mod support;
