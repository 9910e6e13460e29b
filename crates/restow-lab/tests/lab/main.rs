//! The lab itself, with real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod aggregated;
mod encryption;
mod orphan;
mod pair;
mod proxies;
mod single;
mod webhook;
