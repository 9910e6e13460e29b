//! What a controller process reports about itself: Events, metrics, health, and what a migration waits for.

pub mod events;
pub mod health;
pub mod metrics;
pub mod serve;
pub(crate) mod watcher;
