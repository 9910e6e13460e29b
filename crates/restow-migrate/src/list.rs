//! Lists of a resource's metadata: page by page, in chunks or as a stream, and single objects by name.

pub(crate) mod chunks;
pub(crate) mod listing;
pub mod lookup;
pub(crate) mod pages;
pub(crate) mod stream;

pub use pages::{Item, PageError, Target, Waiting};
