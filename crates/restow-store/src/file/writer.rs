//! The one thread that writes: it takes all that wait into one transaction, and answers when that is on disk.
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
    THIS_FORMAT, closed,
    compaction::{Retention, sweep},
    feed::Feed,
    handle::Handle,
    tables::{COMPACTED, FORMAT, NEWEST, SWEPT, damaged, failed},
    write::{Done, Tables},
};
use crate::{StoreError, Unchanged, Write, Written};

/// Writes in one transaction, at most.
const GROUP: usize = 2048;

/// Bytes in one transaction, at most, unless a single write is larger.
const GROUP_BYTES: usize = 8 << 20;

/// Writes of the log that one transaction looks at to forget what they superseded: so many for each of its own.
const SWEEP_RATIO: usize = 2;

/// And at least so many.
const SWEEP: usize = 128;

/// Or so many, when there is nothing else to do.
const SWEEP_IDLE: usize = 2048;

/// A transaction that takes so long waits for the disk, mostly.
const SLOW: Duration = Duration::from_millis(1);

/// How long to wait for those just answered to ask again, at most.
const PATIENCE: Duration = Duration::from_millis(2);

/// Pause after a write failed: a disk that is full or broken is not asked again at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Something for the writer to do.
pub(super) struct Job {
    pub(super) ask: Ask,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// What a job is.
pub(super) enum Ask {
    /// Make a change, if the other keys are unchanged.
    Write(Write, Vec<Unchanged>),
    /// Forget what was stored before a revision.
    Compact(u64),
}

/// None for a write whose other key has changed.
type Answer = Result<Option<Written>, StoreError>;

/// The thread's state.
pub(super) struct Writer {
    handle: Arc<Handle>,
    feed: Arc<Feed>,
    progress: Progress,
    retention: Retention,
    pace: Pace,
    /// When the file last had to be opened again; none since a transaction was written.
    reopened: Option<Instant>,
}

/// How the last transaction went, to tell whether it is worth while to wait for more to do in the next.
///
/// Those just answered are about to ask again. Without them, two groups of writers would take turns at half the size.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    took: Duration,
    answered: usize,
}

/// The numbers that change as the store is used.
#[derive(Clone, Copy, Debug)]
struct Progress {
    newest: u64,
    compacted: u64,
    swept: u64,
}

/// What a transaction that is on disk has done.
struct Committed {
    answers: Vec<Answer>,
    done: Vec<Done>,
    progress: Progress,
}

impl Writer {
    /// Goes on from where the file is.
    pub(super) fn new(handle: Arc<Handle>, retention: Retention) -> Result<(Self, Arc<Feed>), StoreError> {
        let progress = Progress::read(&handle)?;
        let feed = Arc::new(Feed::new(progress.newest));
        let (pace, reopened) = (Pace::default(), None);
        Ok((Self { handle, feed: Arc::clone(&feed), progress, retention, pace, reopened }, feed))
    }

    /// Works until nobody can ask any more.
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
            // After a failure, a transaction without anything to write shows whether the disk can be written.
            let trying = self.reopened.is_some() || self.handle.is_broken();
            if group.is_empty() && due.is_none() && !sweeping && !trying {
                continue;
            }
            match self.serve(group, due) {
                Ok(()) => self.reopened = None,
                Err(error) => {
                    tracing::error!(%error, "the store could not write");
                    if self.handle.is_broken() {
                        self.reopen();
                    }
                }
            }
        }
    }

    /// Opens the file again: what was committed is there, and readers can go on.
    fn reopen(&mut self) {
        let reopened = self.handle.reopen().and_then(|()| Progress::read(&self.handle));
        match reopened {
            Ok(progress) => {
                self.progress = progress;
                self.feed.go_on_from(progress.newest);
            }
            Err(error) => {
                tracing::error!(%error, "the store could not be opened again");
                // Nothing is to be written from where it is not known to be.
                self.handle.close();
                self.handle.note(Some(error));
            }
        }
        self.reopened = Some(Instant::now());
    }

    /// What to do in the next transaction, perhaps nothing; none when nobody can ask any more.
    fn next_group(&self, jobs: &Receiver<Job>, wait: Duration) -> Option<Vec<Job>> {
        match jobs.try_recv() {
            Ok(first) => {
                let mut group = Vec::new();
                gather(first, &mut group, jobs);
                let (until, enough) =
                    (Instant::now() + self.pace.patience(), group.len() + self.pace.answered);
                while group.len() < enough.min(GROUP) {
                    let left = until.saturating_duration_since(Instant::now());
                    let Ok(job) = jobs.recv_timeout(left) else { break };
                    gather(job, &mut group, jobs);
                }
                Some(group)
            }
            Err(TryRecvError::Disconnected) => None,
            // Nobody waits, so nobody would be served better by waiting for others.
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

    /// Does the jobs in one transaction and answers them.
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
    /// Where the file is.
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
    /// How long to wait for those just answered: a part of what a transaction takes, and nothing where that is quick.
    fn patience(self) -> Duration {
        match self.took >= SLOW {
            true => (self.took / 4).min(PATIENCE),
            false => Duration::ZERO,
        }
    }
}

/// Adds a job and all that wait, as far as they fit into one transaction.
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

/// Ends the watches when the thread ends, however it does.
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
    fn only_a_slow_disk_is_worth_waiting_for_others() {
        for (took, expected) in [(0, 0), (999, 0), (1000, 250), (4000, 1000), (60_000, 2000)] {
            let pace = Pace { took: Duration::from_micros(took), answered: 1 };
            assert_eq!(pace.patience(), Duration::from_micros(expected), "{took}");
        }
    }
}
