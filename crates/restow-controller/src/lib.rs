//! The controllers: migrations as objects, and the storage versions that call for them.
//!
//! Each is a thin loop around decisions of `restow-core` and the engine of `restow-migrate`: [`run`] starts them while
//! this process leads, `trigger` makes migrations, `migrator` gives them their turns, `attempt` takes one from object
//! to end, `record` keeps its progress in the object, `pruner` cuts storedVersions down.
//!
//! `storagemigration.k8s.io`, the API of the built-in migrator, is looked at only when that is asked for: `adopter`
//! serves its objects, `delegate` and `undelegate` have its own controller do the first pass.

mod adopter;
mod attempt;
mod delegate;
pub mod events;
mod health;
mod in_tree;
pub mod metrics;
mod migrator;
mod observer;
mod pruner;
mod record;
pub mod run;
pub mod serve;
mod shared;
mod trigger;
mod undelegate;

pub use shared::{Backend, Settings};
