//! The migration of one resource, from agreement to proof.

mod agreement;
mod confirm;
mod deferred;
mod keys;
mod run;
mod setup;
mod touch;

pub use setup::{Journal, ListMode, Migration, MigrationError, MigrationSettings, Observer};
