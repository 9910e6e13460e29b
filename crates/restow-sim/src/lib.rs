//! An adversary for restow: deterministic simulation of a whole cluster.
//!
//! One seed is one run. API servers, their store, users and restow run in one thread, in simulated time, behind a
//! layer that gives wrong answers, late answers and none. Every choice is drawn from the seed, so a seed replays
//! exactly. What is judged is what is stored: [`oracle`] reads the bytes after every write and never asks restow.

mod controllers;
mod driver;
mod extras;
pub mod faults;
pub mod layer;
pub mod ledger;
pub mod oracle;
pub mod plan;
mod process;
pub mod real;
pub mod run;
pub mod shrink;
pub mod store;
pub mod trace;
mod users;
