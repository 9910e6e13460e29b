//! The lab itself, with real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod encryption;
mod orphan;
mod pair;
mod proxies;
mod single;
