//! The controllers: migrations as objects, and the storage versions that call for them.
//!
//! Each is a thin loop around decisions of `restow-core` and the engine of `restow-migrate`: [`run`] starts them while
//! this process leads, `trigger` makes migrations, `migrator` gives them their turns, `attempt` takes one from object
//! to end, `record` keeps its progress in the object, `pruner` cuts storedVersions down.

mod attempt;
pub mod election;
pub mod events;
mod health;
pub mod metrics;
mod migrator;
mod observer;
mod pruner;
mod record;
pub mod run;
pub mod serve;
mod shared;
mod trigger;

pub use shared::Settings;
