//! Every decision restow makes, as pure functions of what was seen and a given `now`.
//!
//! Nothing here awaits, reads a clock, or knows a client: `restow-migrate` carries the decisions out.
//!
//! ```
//! use restow_core::outcome::{Answer, Outcome, classify};
//!
//! let answer = Answer::http(200).with_versions("41", Some("42"));
//! assert_eq!(classify(&answer), Outcome::Rewritten);
//! ```
//!
//! The order below is the order in which a resource meets them.

pub mod adoption;
pub mod agreement;
pub mod condition;
pub mod conversion;
pub mod delegation;
pub mod election;
pub mod encryption;
pub mod estimate;
pub mod evidence;
pub mod flood;
pub mod inventory;
pub mod isolate;
pub mod managed_fields;
pub mod name;
pub mod near;
pub mod outcome;
pub mod pace;
pub mod page;
pub mod passing;
pub mod predecessor;
pub mod progress;
mod proof;
pub mod prune;
pub mod request;
pub mod resource;
pub mod retry;
pub mod schedule;
pub mod sequence;
pub mod storage_version;
pub mod token;
pub mod trigger;
pub mod troubleshooting;
pub mod write_gate;
