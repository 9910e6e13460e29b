//! The stored bytes of a cluster, in etcd or in the file of an embedded server.

use std::{fs, path::Path, time::Instant};

use anyhow::{Context, Result};
use restow_store::{
    Range, Store as _,
    file::{FileSettings, FileStore},
};

use super::Cluster;
use crate::{Etcd, Part, launch};

/// Entries per page.
const PAGE: usize = 1000;
/// The file of a store.
const FILE: &str = "store.redb";
/// How much longer a server runs between two reads of its file than it is paused for one.
const RUNS_FOR: u32 = 2;

/// Reads the stored bytes, without an API server.
#[derive(Debug)]
pub enum Store<'a> {
    /// In etcd, the cluster's own.
    Etcd(Box<Etcd>),
    /// In the file of an embedded server.
    File(&'a Cluster),
}

impl Cluster {
    /// The store of the cluster.
    pub fn store(&self) -> Store<'_> {
        match &self.etcd_port {
            Some(port) => Store::Etcd(Box::new(Etcd::new(port.number))),
            None => Store::File(self),
        }
    }

    /// Copies the file of an embedded server into a folder.
    async fn copy_file(&self, folder: &Path) -> Result<()> {
        // One reader at a time: another one must not unpause the server while the file is copied. Tests ask again and again,
        // and a server that is mostly paused would not get on.
        let mut next_read = self.next_read.lock().await;
        if let Some(next_read) = *next_read {
            tokio::time::sleep_until(next_read.into()).await;
        }
        let began = Instant::now();
        let file = self.dir().join(launch::EMBEDDED).join("store").join(FILE);
        // The server locks its file. While it is paused, a copy of the file is as after a crash and can be opened.
        let server = Part::ApiServer(0);
        let paused = self.pause(server).is_ok();
        let copied = fs::copy(&file, folder.join(FILE));
        if paused {
            self.unpause(server)?;
        }
        *next_read = Some(Instant::now() + RUNS_FOR * began.elapsed());
        copied.with_context(|| format!("copying {}", file.display()))?;
        Ok(())
    }
}

impl Store<'_> {
    /// Visits every key below a prefix, in order, as of one revision.
    pub async fn for_each(&self, prefix: &str, mut visit: impl FnMut(&str, &[u8])) -> Result<()> {
        let cluster = match self {
            Self::Etcd(etcd) => return etcd.for_each(prefix, visit).await,
            Self::File(cluster) => cluster,
        };
        let copy = tempfile::tempdir().context("making a folder")?;
        cluster.copy_file(copy.path()).await?;
        let store =
            FileStore::open(copy.path(), FileSettings::default()).context("opening a copy of the store")?;
        let mut start = None;
        loop {
            let range = Range { prefix: prefix.to_owned(), start, limit: PAGE, revision: None };
            let page = store.list(range).await.context("reading a copy of the store")?;
            for entry in &page.entries {
                visit(&entry.key, &entry.value);
            }
            match page.entries.last() {
                Some(last) if page.entries.len() == PAGE => start = Some(format!("{}\0", last.key)),
                _ => return Ok(()),
            }
        }
    }

    /// The value of a key such as `/registry/secrets/default/name`, if it exists.
    pub async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.for_each(key, |other, value| {
            if other == key {
                found = Some(value.to_vec());
            }
        })
        .await?;
        Ok(found)
    }
}
