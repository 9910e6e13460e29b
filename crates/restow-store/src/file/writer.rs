//! The thread that writes. It puts all waiting jobs into one transaction, and answers them when that is on disk.
#![allow(clippy::disallowed_methods)] // its thread waits in real time

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};

use redb::Database;
use tokio::sync::oneshot;

use super::{
    compaction::{Retention, sweep},
    errors::{closed, damaged, failed},
    feed::Feed,
    handle::Handle,
    tables::{COMPACTED, FORMAT, NEWEST, SWEPT, THIS_FORMAT},
    write::{Done, Tables},
};
use crate::{StoreError, Unchanged, Write, Written};

/// The maximum number of writes in one transaction.
const GROUP: usize = 2048;

/// The maximum number of bytes in one transaction, unless a single write is larger.
const GROUP_BYTES: usize = 8 << 20;

/// How many entries of the log a transaction sweeps for each of its own writes.
const SWEEP_RATIO: usize = 2;

/// The minimum number of entries that a transaction sweeps.
const SWEEP: usize = 128;

/// How many entries a transaction sweeps if there is nothing else to do.
const SWEEP_IDLE: usize = 2048;

/// A transaction that takes longer mostly waits for the disk.
const SLOW: Duration = Duration::from_millis(1);

/// How long to wait at most for further jobs of callers that were just answered.
const MAX_GROUP_WAIT: Duration = Duration::from_millis(2);

/// The pause after a failed write, because the disk may be full or broken.
const PAUSE: Duration = Duration::from_secs(1);

/// A job for the writer.
pub(super) struct Job {
    pub(super) ask: Ask,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// The request of a job.
pub(super) enum Ask {
    /// Make a change, if the other keys are unchanged.
    Write(Write, Vec<Unchanged>),
    /// Compact to a revision.
    Compact(u64),
}

/// The answer to a job; `None` for a write if another key that it depends on has changed.
type Answer = Result<Option<Written>, StoreError>;

/// The state of the thread.
pub(super) struct Writer {
    handle: Arc<Handle>,
    feed: Arc<Feed>,
    progress: Progress,
    retention: Retention,
    pace: Pace,
    /// When the file was last reopened; `None` after a successful transaction.
    reopened: Option<Instant>,
}

/// How long the last transaction took, which decides whether to wait for more jobs for the next one.
///
/// Callers that were just answered often send the next write at once. Without waiting for them, two groups of writers would
/// alternate at half the size.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    took: Duration,
    answered: usize,
}

/// The revisions of the store.
#[derive(Clone, Copy, Debug)]
struct Progress {
    newest: u64,
    compacted: u64,
    swept: u64,
}

/// The result of a transaction that is on disk.
struct Committed {
    answers: Vec<Answer>,
    done: Vec<Done>,
    progress: Progress,
}

impl Writer {
    /// Starts from the revisions in the file.
    pub(super) fn new(handle: Arc<Handle>, retention: Retention) -> Result<(Self, Arc<Feed>), StoreError> {
        let progress = Progress::read(&handle)?;
        let feed = Arc::new(Feed::new(progress.newest));
        let (pace, reopened) = (Pace::default(), None);
        Ok((Self { handle, feed: Arc::clone(&feed), progress, retention, pace, reopened }, feed))
    }

    /// Works until the queue is closed.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        let _closing = Closing(Arc::clone(&self.feed));
        loop {
            let sweeping = self.progress.swept < self.progress.compacted;
            let wait = match self.reopened {
                Some(reopened) => PAUSE.saturating_sub(reopened.elapsed()),
                None if sweeping => Duration::ZERO,
                None => self.retention.interval(),
            };
            let Some(group) = self.next_group(jobs, wait) else { return };
            if self.reopened.is_some_and(|reopened| reopened.elapsed() < PAUSE) {
                let trouble = self.handle.check().err().unwrap_or_else(closed);
                group.into_iter().for_each(|job| drop(job.reply.send(Err(trouble.clone()))));
                continue;
            }
            let due = self.retention.due(Instant::now(), self.progress.newest, self.progress.compacted);
            // After a failure, an empty transaction shows whether the disk can be written again.
            let trying = self.reopened.is_some() || self.handle.is_broken();
            if group.is_empty() && due.is_none() && !sweeping && !trying {
                continue;
            }
            match self.serve(group, due) {
                Ok(()) => self.reopened = None,
                Err(error) => {
                    tracing::error!(%error, "cannot write to the store");
                    if self.handle.is_broken() {
                        self.reopen();
                    }
                }
            }
        }
    }

    /// Reopens the file. Committed data is there, and readers can continue.
    fn reopen(&mut self) {
        let reopened = self.handle.reopen().and_then(|()| Progress::read(&self.handle));
        match reopened {
            Ok(progress) => {
                self.progress = progress;
                self.feed.go_on_from(progress.newest);
            }
            Err(error) => {
                tracing::error!(%error, "cannot reopen the store");
                // Nothing is written while the revisions of the file are unknown.
                self.handle.close();
                self.handle.note(Some(error));
            }
        }
        self.reopened = Some(Instant::now());
    }

    /// The jobs of the next transaction, possibly none; `None` if the queue is closed.
    fn next_group(&self, jobs: &Receiver<Job>, wait: Duration) -> Option<Vec<Job>> {
        match jobs.try_recv() {
            Ok(first) => {
                let mut group = Vec::new();
                gather(first, &mut group, jobs);
                let (until, enough) =
                    (Instant::now() + self.pace.group_wait(), group.len() + self.pace.answered);
                while group.len() < enough.min(GROUP) {
                    let left = until.saturating_duration_since(Instant::now());
                    let Ok(job) = jobs.recv_timeout(left) else { break };
                    gather(job, &mut group, jobs);
                }
                Some(group)
            }
            Err(TryRecvError::Disconnected) => None,
            // Nobody waits, so there is no reason to wait for more jobs.
            Err(TryRecvError::Empty) => match jobs.recv_timeout(wait) {
                Ok(first) => {
                    let mut group = Vec::new();
                    gather(first, &mut group, jobs);
                    Some(group)
                }
                Err(RecvTimeoutError::Timeout) => Some(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => None,
            },
        }
    }

    /// Carries out the jobs in one transaction and answers them.
    fn serve(&mut self, group: Vec<Job>, due: Option<u64>) -> Result<(), StoreError> {
        let begun = Instant::now();
        let (asks, replies): (Vec<_>, Vec<_>) = group.into_iter().map(|job| (job.ask, job.reply)).unzip();
        let committed = self.commit(asks, due);
        self.handle.note(committed.as_ref().err().cloned());
        match committed {
            Ok(Committed { answers, done, progress }) => {
                self.progress = progress;
                self.pace = Pace { took: begun.elapsed(), answered: replies.len() };
                self.feed.publish(done, progress.newest, || self.handle.snapshot());
                for (reply, answer) in replies.into_iter().zip(answers) {
                    reply.send(answer).ok();
                }
                Ok(())
            }
            Err(error) => {
                for reply in replies {
                    reply.send(Err(error.clone())).ok();
                }
                Err(error)
            }
        }
    }

    fn commit(&self, asks: Vec<Ask>, due: Option<u64>) -> Result<Committed, StoreError> {
        self.handle.with(|database| self.commit_to(database, asks, due))
    }

    fn commit_to(
        &self,
        database: &Database,
        asks: Vec<Ask>,
        due: Option<u64>,
    ) -> Result<Committed, StoreError> {
        let writing = database.begin_write().map_err(failed)?;
        let mut tables = Tables::open(&writing)?;
        let mut progress = self.progress;
        let (mut answers, mut done) = (Vec::with_capacity(asks.len()), Vec::with_capacity(asks.len()));
        for ask in asks {
            match ask {
                Ask::Write(_, others) if tables.is_any_changed(&others)? => answers.push(Ok(None)),
                Ask::Write(write, _) => {
                    let (written, change) = tables.write(progress.newest, write)?;
                    progress.newest += u64::from(change.is_some());
                    done.extend(change);
                    answers.push(Ok(Some(written)));
                }
                Ask::Compact(revision) => answers.push(progress.compact(revision)),
            }
        }
        tables.count(&done)?;
        if let Some(due) = due {
            progress.compacted = progress.compacted.max(due);
        }
        if progress.swept < progress.compacted {
            let most = if done.is_empty() { SWEEP_IDLE } else { SWEEP.max(SWEEP_RATIO * done.len()) };
            progress.swept = sweep(&mut tables, progress.swept, progress.compacted, most)?;
        }
        for (name, before, now) in [
            (NEWEST, self.progress.newest, progress.newest),
            (COMPACTED, self.progress.compacted, progress.compacted),
            (SWEPT, self.progress.swept, progress.swept),
        ] {
            if now != before {
                tables.set_number(name, now)?;
            }
        }
        if self.reopened.is_some() {
            tables.set_number(FORMAT, THIS_FORMAT)?;
        }
        drop(tables);
        writing.commit().map_err(failed)?;
        Ok(Committed { answers, done, progress })
    }
}

impl Progress {
    /// Reads the revisions of the file.
    fn read(handle: &Handle) -> Result<Self, StoreError> {
        handle.with(|database| {
            let writing = database.begin_write().map_err(failed)?;
            let tables = Tables::open(&writing)?;
            let number =
                |name| tables.number(name)?.ok_or_else(|| damaged("a number about the store is missing"));
            let progress =
                Self { newest: number(NEWEST)?, compacted: number(COMPACTED)?, swept: number(SWEPT)? };
            drop(tables);
            writing.abort().map_err(failed)?;
            Ok(progress)
        })
    }

    fn compact(&mut self, revision: u64) -> Answer {
        if revision > self.newest {
            return Err(StoreError::Future { asked: revision, newest: self.newest });
        }
        self.compacted = self.compacted.max(revision);
        Ok(Some(Written::Done { revision }))
    }
}

impl Pace {
    /// How long to wait for more jobs: a fraction of the time of a transaction, or zero on a fast disk.
    fn group_wait(self) -> Duration {
        match self.took >= SLOW {
            true => (self.took / 4).min(MAX_GROUP_WAIT),
            false => Duration::ZERO,
        }
    }
}

/// Adds a job and all waiting jobs that fit into one transaction.
fn gather(first: Job, group: &mut Vec<Job>, jobs: &Receiver<Job>) {
    let mut bytes = first.bytes();
    group.push(first);
    while group.len() < GROUP && bytes < GROUP_BYTES {
        let Ok(job) = jobs.try_recv() else { break };
        bytes += job.bytes();
        group.push(job);
    }
}

impl Job {
    fn bytes(&self) -> usize {
        match &self.ask {
            Ask::Write(write, _) => write.key.len() + write.value.as_ref().map_or(0, |value| value.len()),
            Ask::Compact(_) => 0,
        }
    }
}

/// Ends the watches when the thread ends, even after a panic.
struct Closing(Arc<Feed>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Pace;

    #[test]
    fn the_writer_waits_for_more_jobs_only_on_a_slow_disk() {
        for (took, expected) in [(0, 0), (999, 0), (1000, 250), (4000, 1000), (60_000, 2000)] {
            let pace = Pace { took: Duration::from_micros(took), answered: 1 };
            assert_eq!(pace.group_wait(), Duration::from_micros(expected), "{took}");
        }
    }
}
