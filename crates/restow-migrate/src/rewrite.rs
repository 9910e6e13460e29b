//! Writes of objects: each is sent a patch that changes nothing, until its outcome is decided.

pub(crate) mod health;
pub(crate) mod hold;
pub(crate) mod page;
mod rewriter;
mod write;

pub use page::Unfinished;
pub use rewriter::{Rewriter, WriteOptions};
