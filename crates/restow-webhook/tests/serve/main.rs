//! The server of the webhook, in the process of the test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_converters;
mod client;
mod draining;
mod fixture;
mod limits;
mod requests;
