//! A cache of OpenAPI documents, by their hashes: they are large, and clients ask for them often.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// How many documents are kept.
const CAPACITY: usize = 64;

/// The cached documents. The cache is cleared when it is full.
#[derive(Debug, Default)]
pub(crate) struct DocumentCache(Mutex<HashMap<String, Bytes>>);

impl DocumentCache {
    /// The document of a hash, created if it is not cached.
    pub(crate) fn get_or_make(&self, hash: String, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut documents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if documents.len() >= CAPACITY {
            documents.clear();
        }
        documents.entry(hash).or_insert_with(make).clone()
    }
}
