//! Leader election on a real control plane.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod contender;
mod leading;
mod support;
