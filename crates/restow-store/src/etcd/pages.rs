//! Pages of keys as they are, also of keys that are not text.

use bytes::Bytes;

use super::{
    client::Refused,
    entry::{newest, signed},
    messages::{RangeRequest, RangeResponse},
    store::EtcdStore,
};
use crate::StoreError;

/// Which keys to read.
#[derive(Clone, Debug)]
pub struct PageRange {
    /// The first key; a zero byte is the first of all.
    pub start: Vec<u8>,
    /// The maximum number of keys.
    pub limit: usize,
    /// The revision to read; `None` for the newest.
    pub revision: Option<u64>,
}

/// Keys and values in the order of keys.
#[derive(Clone)]
pub struct Page {
    /// Each key with its value.
    pub entries: Vec<(Bytes, Bytes)>,
    /// How many keys follow in the store.
    pub remaining: u64,
    /// The revision of the page.
    pub revision: u64,
}

impl EtcdStore {
    /// Reads a page of all keys of the store, whatever their names.
    pub async fn page(&self, range: PageRange) -> Result<Page, StoreError> {
        let ask = RangeRequest {
            key: range.start,
            range_end: vec![0],
            limit: i64::try_from(range.limit).unwrap_or(i64::MAX),
            revision: signed(range.revision.unwrap_or(0)),
        };
        let answer: RangeResponse = match self.range(ask).await {
            Err(Refused::OutOfRange) => return Err(self.out_of_range(range.revision.unwrap_or(0)).await),
            answer => answer?,
        };
        let shown = answer.kvs.len() as u64;
        let count = u64::try_from(answer.count).unwrap_or_default();
        let revision = range.revision.map_or_else(|| newest(answer.header), Ok)?;
        let entries = answer.kvs.into_iter().map(|found| (found.key, found.value)).collect();
        Ok(Page { entries, remaining: count.saturating_sub(shown), revision })
    }
}
