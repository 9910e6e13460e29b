//! A running etcd.

#![allow(clippy::disallowed_methods)] // it is paced in real time, and not simulated

use std::time::{Duration, Instant};

use restow_store::{
    StoreError,
    etcd::{EtcdError, EtcdSettings, EtcdStore, PageRange},
};
use tokio::runtime::Handle;

use super::reader::{Source, SourceError};
use crate::meter::Meter;

/// The size of a page to aim for, in bytes.
const PAGE_BYTES: usize = 2 << 20;
/// The most keys of a page.
const MAX_KEYS: usize = 250;
/// The keys of the first page.
const FIRST_KEYS: usize = 50;
/// The longest pause between two pages.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A running etcd, of which every page is read at the revision of the first one.
///
/// One request is in flight at a time, and after each one there is a pause as long as the request took, so that etcd is
/// busy with it for at most half of the time.
pub struct LiveEtcd {
    endpoints: String,
    store: EtcdStore,
    runtime: Handle,
}

impl LiveEtcd {
    /// An etcd with these settings, which is never compacted. Call it within a runtime that keeps running.
    pub fn new(settings: EtcdSettings) -> Result<Self, EtcdError> {
        let endpoints = settings.endpoints.join(",");
        let store = EtcdStore::new(&EtcdSettings { compact_every: None, ..settings })?;
        Ok(Self { endpoints, store, runtime: Handle::current() })
    }

    async fn pages(&self, meter: &Meter, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, StoreError> {
        let mut range = PageRange { start: vec![0], limit: FIRST_KEYS, revision: None };
        loop {
            let began = Instant::now();
            let page = self.store.page(range.clone()).await?;
            let took = began.elapsed();
            if range.revision.is_none() {
                meter.begin(page.entries.len() as u64 + page.remaining);
            }
            let mut bytes = 0;
            for (key, value) in &page.entries {
                bytes += key.len() + value.len();
                visit(key, value);
            }
            meter.add(page.entries.len() as u64);
            let Some((last, _)) = page.entries.last().filter(|_| page.remaining > 0) else {
                return Ok(page.revision);
            };
            range.start = [last, &b"\0"[..]].concat();
            range.revision = Some(page.revision);
            range.limit = next_limit(page.entries.len(), bytes);
            tokio::time::sleep(took.min(MAX_PAUSE)).await;
        }
    }
}

/// How many keys the next page gets, given the last one.
fn next_limit(keys: usize, bytes: usize) -> usize {
    (PAGE_BYTES * keys / bytes.max(1)).clamp(1, MAX_KEYS)
}

impl Source for LiveEtcd {
    fn name(&self) -> String {
        self.endpoints.clone()
    }

    fn read(&self, meter: &Meter, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, SourceError> {
        let failed = |source| SourceError::Etcd { endpoints: self.endpoints.clone(), source };
        self.runtime.block_on(self.pages(meter, visit)).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::next_limit;

    #[test]
    fn pages_have_about_the_same_size() {
        for (keys, bytes, expected) in
            [(50, 50 * 2048, 250), (50, 50 << 20, 2), (1, 3 << 20, 1), (50, 0, 250), (2, 2 << 20, 2)]
        {
            assert_eq!(next_limit(keys, bytes), expected, "{keys} {bytes}");
        }
    }
}
