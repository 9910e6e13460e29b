//! Chains of typed versions: what they convert, what they keep and what they refuse.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod edits;
mod refusals;
mod round_trips;
mod versions;
