//! Every decision restow makes, as pure functions of what was observed and a given `now`.
//!
//! Nothing here awaits, reads a clock, or knows a client: `restow-migrate` and `restow-controller` carry the decisions
//! out.
//!
//! ```
//! use restow_core::rewrite::outcome::{Answer, Outcome, classify};
//!
//! let answer = Answer::http(200).with_versions("41", Some("42"));
//! assert_eq!(classify(&answer), Outcome::Rewritten);
//! ```
//!
//! A group uses only the groups above it; `controller` and `protocol` do not use each other.

pub mod resource;

pub mod agreement;

pub mod rewrite;

pub mod controller;
pub mod protocol;
