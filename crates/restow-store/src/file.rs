//! A store in one file of a data directory.
//!
//! All writes that wait share one transaction, which is on disk before they are answered. Readers see the file as
//! it was when they began and never wait for writers.

mod compaction;
mod errors;
mod feed;
mod handle;
mod inspect;
mod open;
mod overlay;
mod read;
mod remaining;
mod shared;
mod store;
mod tables;
mod watch;
mod write;
mod writer;

pub use compaction::Keep;
pub use inspect::inspect;
pub use open::{FileSettings, OpenError};
pub use store::FileStore;

#[cfg(test)]
mod tests;
