//! The kit finds what is wrong with a conversion, and reports it for a person to read.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod backup;
mod fixtures;
mod round_trips;
mod server;
mod table;
mod versions;
