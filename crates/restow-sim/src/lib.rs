//! A deterministic simulation of a whole cluster, which tests restow.
//!
//! One seed is one run. API servers, their store, users and restow run in one thread, in simulated time, behind a layer that
//! injects wrong, late and missing answers. Every choice is drawn from the seed, so a seed replays exactly. The stored bytes
//! are judged: [`oracle`] reads them after every write and never asks restow.

mod actions;
pub mod connection;
mod controllers;
mod driver;
pub mod faults;
mod keys;
pub mod layer;
pub mod ledger;
mod objects;
pub mod oracle;
pub mod plan;
mod process;
pub mod real;
pub mod report;
pub mod run;
pub mod shrink;
pub mod trace;
mod users;
mod world;
