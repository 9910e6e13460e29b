//! The migration of one resource, from agreement to proof.

mod aside;
mod confirm;
mod keys;
mod looks;
mod run;
mod setup;
mod touch;

pub use setup::{Failure, Journal, ListMode, Migration, Observer, Settings};
