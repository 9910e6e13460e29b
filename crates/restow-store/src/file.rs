//! A store in one file of a data directory.
//!
//! All that wait to write share one transaction, which is on disk before they are answered. Readers see the file as
//! it was when they began, and never wait for writers.

mod compaction;
mod feed;
mod handle;
mod read;
mod remaining;
mod tables;
mod watch;
mod write;
mod writer;

use std::{
    fmt, fs, io,
    os::unix::fs::OpenOptionsExt as _,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use async_trait::async_trait;
use futures::stream::BoxStream;
use redb::{Database, DatabaseError, StorageError, TableHandle};
use tokio::{sync::oneshot, task};

pub use compaction::Keep;

use compaction::Retention;
use feed::Feed;
use handle::{Handle, Opener, Opening};
use remaining::Remaining;
use tables::{COMPACTED, FORMAT, NEWEST, SWEPT, failed};
use watch::Watch;
use write::Tables;
use writer::{Ask, Job, Writer};

use crate::{Changes, Got, Listed, Range, Store, StoreError, Unchanged, Write, Written};

/// The name of the file in its directory.
const FILE: &str = "store.redb";

/// How the tables are written by this version.
const THIS_FORMAT: u64 = 1;

/// The revision of an empty store: 0 would mean "any" to readers of Kubernetes' API.
const FIRST: u64 = 1;

/// How to run a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How much of its history it keeps.
    pub keep: Keep,
    /// Memory for parts of the file, in bytes.
    pub cache: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { keep: Keep::default(), cache: 128 << 20 }
    }
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another has it open.
    #[error("the data directory {} is in use by another process", dir.display())]
    InUse {
        /// The data directory.
        dir: PathBuf,
    },
    /// The file is not a store, or no longer one.
    #[error("{} is not a store or is damaged: {reason}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A later version made it.
    #[error("{} has format {found}; this version reads format {THIS_FORMAT}", file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// The format it has.
        found: u64,
    },
    /// The directory or the file cannot be made, read or written.
    #[error("cannot open {}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A store in one file.
pub struct FileStore {
    instance: Option<String>,
    shared: Arc<Shared>,
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
}

/// What readers share with the writer.
struct Shared {
    handle: Arc<Handle>,
    feed: Arc<Feed>,
    remaining: Remaining,
}

impl FileStore {
    /// Opens the store in a directory, and makes it if there is none.
    pub fn open(dir: &Path, settings: Settings) -> Result<Self, OpenError> {
        fs::create_dir_all(dir).map_err(|source| OpenError::Io { path: dir.to_owned(), source })?;
        let file = dir.join(FILE);
        make_private(&file).map_err(|source| OpenError::Io { path: file.clone(), source })?;
        let opener = opener(file.clone(), settings.cache);
        let opened = catch_unwind(AssertUnwindSafe(|| Self::open_file(dir, &file, settings.keep, opener)));
        let panicked = |_| OpenError::Damaged { file, reason: "reading it failed".to_owned() };
        opened.map_err(panicked)?
    }

    fn open_file(dir: &Path, file: &Path, keep: Keep, opener: Opener) -> Result<Self, OpenError> {
        let damaged =
            |error: StoreError| OpenError::Damaged { file: file.to_owned(), reason: error.to_string() };
        let handle = Arc::new(Handle::open(opener).map_err(|error| refused(error, dir, file))?);
        match handle.with(prepare).map_err(damaged)? {
            THIS_FORMAT => {}
            found => return Err(OpenError::Format { file: file.to_owned(), found }),
        }
        // It is locked while it is open.
        let instance = fs::metadata(file).ok().and_then(|locked| crate::instance(&locked));
        // So that the file itself is there after a loss of power; not every system can do it.
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

    /// Hands something to the writer. Its queue has no limit of its own: each waits for its answer.
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
        // Without other keys there is none that can have changed.
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
        // The writer ends when nobody can ask any more; waiting for it leaves the file closed.
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

/// Opens a file of this path.
fn opener(file: PathBuf, cache: usize) -> Opener {
    Box::new(move |opening| {
        let mut builder = Database::builder();
        builder.set_cache_size(cache);
        match opening {
            Opening::First => builder.create(&file),
            Opening::Again => builder.open(&file),
        }
    })
}

/// Makes a file that is missing for its owner alone: it may hold Secrets, whatever the umask says.
fn make_private(file: &Path) -> io::Result<()> {
    match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Makes the tables of a new file; tells the format of any.
fn prepare(database: &Database) -> Result<u64, StoreError> {
    let writing = database.begin_write().map_err(failed)?;
    let mut names = writing.list_tables().map_err(failed)?.map(|table| table.name().to_owned());
    let is_new = names.next().is_none();
    drop(names);
    let mut tables = Tables::open(&writing)?;
    if is_new {
        for (name, number) in [(FORMAT, THIS_FORMAT), (NEWEST, FIRST), (COMPACTED, 0), (SWEPT, 0)] {
            tables.set_number(name, number)?;
        }
    }
    let format = tables.number(FORMAT)?;
    drop(tables);
    match is_new {
        true => writing.commit().map_err(failed)?,
        false => writing.abort().map_err(failed)?,
    }
    format.ok_or_else(|| StoreError::Damaged("it is a file of another program".to_owned()))
}

fn refused(error: DatabaseError, dir: &Path, file: &Path) -> OpenError {
    let file = file.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { dir: dir.to_owned() },
        DatabaseError::Storage(StorageError::Io(source)) if source.kind() != io::ErrorKind::InvalidData => {
            OpenError::Io { path: file, source }
        }
        error => OpenError::Damaged { file, reason: error.to_string() },
    }
}

/// Reads from a file whose bytes may be anything: what the database does not survive is damage too.
fn guarded<T>(read: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(StoreError::Damaged("reading it failed".to_owned())))
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}

#[cfg(test)]
mod tests;
