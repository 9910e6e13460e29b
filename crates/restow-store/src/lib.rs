//! Where an API server keeps its objects: keys, bytes and revisions behind the trait [`Store`].
//!
//! Every write has a revision, one higher than the last. A revision stays readable until it is compacted. A watch
//! delivers every change after a revision in order, or an error if that revision is compacted.
//!
//! This crate knows nothing about Kubernetes objects: `restow-apiserver` encodes and decodes the bytes.

pub mod encryption;
pub mod etcd;
pub mod file;
mod instance;
#[cfg(feature = "memory")]
pub mod memory;
mod store;

pub use instance::instance;
pub use store::{Change, Changes, Entry, Got, Listed, Range, Store, StoreError, Unchanged, Write, Written};
