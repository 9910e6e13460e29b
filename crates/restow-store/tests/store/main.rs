//! The semantics of every store, and tests of each one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod crash;
mod damage;
mod encryption;
mod etcd;
mod file;
#[cfg(feature = "memory")]
mod memory;
mod model;
mod semantics;
mod support;
mod tls;
