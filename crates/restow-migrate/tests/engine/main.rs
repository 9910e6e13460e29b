//! The engine on the embedded API server, in one process: what it stores, and what it makes of wrong answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, clippy::disallowed_methods)]

mod bench;

mod agreement;
mod discovery;
mod prune;
mod refusals;
mod resuming;
mod rewrites;
