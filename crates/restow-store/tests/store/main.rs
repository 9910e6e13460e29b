//! What every store keeps to, on each of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod crash;
mod damage;
mod encryption;
mod etcd;
mod file;
mod model;
mod semantics;
mod support;
mod tls;
