//! The store: reads use snapshots of the file, writes go to the writer thread.

use std::{
    fmt, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::{sync::oneshot, task};

use super::{
    compaction::{Keep, Retention},
    errors::{closed, guarded},
    handle::{Handle, Opener},
    open::{FILE, FileSettings, OpenError, make_private, opener, prepare, refused},
    remaining::Remaining,
    shared::Shared,
    tables::THIS_FORMAT,
    watch::Watch,
    writer::{Ask, Job, Writer},
};
use crate::{Changes, Got, Listed, Range, Store, StoreError, Unchanged, Write, Written, instance::instance};

/// Stores objects in one file, which only one process may open.
pub struct FileStore {
    instance: Option<String>,
    shared: Arc<Shared>,
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
}

impl FileStore {
    /// Opens the store in a directory, and creates it if there is none.
    pub fn open(dir: &Path, settings: FileSettings) -> Result<Self, OpenError> {
        fs::create_dir_all(dir).map_err(|source| OpenError::Io { path: dir.to_owned(), source })?;
        let file = dir.join(FILE);
        make_private(&file).map_err(|source| OpenError::Io { path: file.clone(), source })?;
        let opener = opener(file.clone(), settings.cache);
        let opened = catch_unwind(AssertUnwindSafe(|| Self::open_file(dir, &file, settings.keep, opener)));
        let panicked =
            |_| OpenError::Damaged { file, reason: "the database panicked while reading".to_owned() };
        opened.map_err(panicked)?
    }

    pub(super) fn open_file(dir: &Path, file: &Path, keep: Keep, opener: Opener) -> Result<Self, OpenError> {
        let damaged =
            |error: StoreError| OpenError::Damaged { file: file.to_owned(), reason: error.to_string() };
        let handle = Arc::new(Handle::open(opener).map_err(|error| refused(error, dir, file))?);
        match handle.with(prepare).map_err(damaged)? {
            THIS_FORMAT => {}
            found => return Err(OpenError::Format { file: file.to_owned(), found }),
        }
        // The file is locked while it is open.
        let instance = fs::metadata(file).ok().and_then(|locked| instance(&locked));
        // Makes the new file durable; not every system supports it.
        fs::File::open(dir).and_then(|dir| dir.sync_all()).ok();
        let retention = Retention::new(keep);
        let (writer, feed) = Writer::new(Arc::clone(&handle), retention).map_err(damaged)?;
        let (jobs, waiting) = mpsc::channel();
        let thread = thread::Builder::new().name("store-writer".to_owned());
        let writer = thread
            .spawn(move || writer.run(&waiting))
            .map_err(|source| OpenError::Io { path: file.to_owned(), source })?;
        let shared = Arc::new(Shared { handle, feed, remaining: Remaining::default() });
        Ok(Self { instance, shared, jobs: Some(jobs), writer: Some(writer) })
    }

    /// Sends a job to the writer. The queue needs no limit, because each caller waits for its answer.
    async fn ask(&self, ask: Ask) -> Result<Option<Written>, StoreError> {
        let (reply, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(closed)?;
        jobs.send(Job { ask, reply }).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

#[async_trait]
impl Store for FileStore {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        guarded(|| self.shared.handle.snapshot()?.get(key))
    }

    async fn list(&self, range: Range) -> Result<Listed, StoreError> {
        let shared = Arc::clone(&self.shared);
        let read = move || shared.handle.snapshot()?.list(&range, &shared.remaining);
        task::spawn_blocking(|| guarded(read)).await.map_err(|_| closed())?
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        // Without other keys, the write cannot be rejected because of them.
        self.ask(Ask::Write(write, Vec::new())).await?.ok_or_else(closed)
    }

    async fn write_while(
        &self,
        write: Write,
        unchanged: Vec<Unchanged>,
    ) -> Result<Option<Written>, StoreError> {
        self.ask(Ask::Write(write, unchanged)).await
    }

    async fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Changes, StoreError>>, StoreError> {
        guarded(|| self.shared.handle.snapshot()?.check(after))?;
        Ok(Watch::start(&self.shared, prefix, after))
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        guarded(|| Ok(self.shared.handle.snapshot()?.newest))
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        self.ask(Ask::Compact(revision)).await.map(drop)
    }

    fn instance(&self) -> Option<String> {
        self.instance.clone()
    }

    async fn check(&self) -> Result<(), StoreError> {
        if self.writer.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(closed());
        }
        self.shared.handle.check()
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        // The writer ends when its queue is closed. Waiting for it makes sure that the file is closed.
        self.jobs.take();
        if let Some(writer) = self.writer.take() {
            writer.join().ok();
        }
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore").finish_non_exhaustive()
    }
}
