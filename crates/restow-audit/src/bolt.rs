//! Reads a bbolt file, the database of etcd, without writing to it and without trusting it.
//!
//! Pages have no checksums, so everything that a writer of bbolt guarantees is checked: where each element of a page is, the
//! order of keys, the number in each page's header, and that no page is used twice. What does not fit is an error.

mod buckets;
mod bytes;
mod database;
mod error;
mod meta;
mod page;
mod walk;

pub(crate) use buckets::find;
pub use bytes::ReadAt;
pub(crate) use database::{Bucket, Database};
pub use error::BoltError;
pub(crate) use walk::{Entry, Walk};
