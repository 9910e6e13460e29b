//! The engine on the embedded API server, in one process. The tests look at the stored bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, clippy::disallowed_methods)]

mod bench;

mod agreement;
mod discovery;
mod lists;
mod prune;
mod refusals;
mod resuming;
mod rewrites;
mod verification;
