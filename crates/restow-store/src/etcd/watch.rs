//! One watch in etcd. It has its own stream, because etcd reports progress for a whole stream.

use std::{sync::Arc, time::Duration};

use futures::{
    channel::mpsc,
    stream::{self, BoxStream, StreamExt},
};
use tokio::time;
use tonic::Streaming;

use super::{
    client::{Client, described},
    entry::{damaged, end, entry, newest, signed, unsigned},
    messages::{
        Event, EventType, WatchAsk, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
    },
};
use crate::{Change, Changes, StoreError};

/// How often a watch without changes asks for progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// How many requests may be queued on a stream. If there are more, etcd does not read them.
const QUESTIONS: usize = 8;

/// The state of a watch.
struct Watch {
    asks: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    after: u64,
    told: u64,
    /// How many times it has asked for progress since the last answer.
    asked: u32,
    /// The maximum of `asked`.
    max_asks: u32,
}

/// Starts a watch, and returns the newest revision of its member.
pub(super) async fn start(
    client: &Arc<Client>,
    prefix: &str,
    after: u64,
) -> Result<(BoxStream<'static, Result<Changes, StoreError>>, u64), StoreError> {
    let (watch, seen) = Watch::create(client, prefix, after).await?;
    // After an error the watch is dropped and the stream ends.
    let next = |watch: Option<Watch>| async move {
        let mut watch = watch?;
        match watch.next().await {
            Ok(changes) => Some((Ok(changes), Some(watch))),
            Err(error) => Some((Err(error), None)),
        }
    };
    Ok((stream::unfold(Some(watch), next).boxed(), seen))
}

/// The oldest readable revision. Only an answer to a watch of a compacted revision has it.
pub(super) async fn oldest(client: &Arc<Client>, asked: u64) -> Result<u64, StoreError> {
    let (mut watch, _) = Watch::create(client, "\0", asked.saturating_sub(1)).await?;
    let late = |_| StoreError::Unavailable("etcd did not answer which revisions are compacted".to_owned());
    match time::timeout(client.timeout(), watch.next()).await.map_err(late)? {
        Err(StoreError::Compacted { oldest, .. }) => Ok(oldest),
        Err(error) => Err(error),
        // It was not compacted this time.
        Ok(_) => Ok(asked),
    }
}

impl Watch {
    async fn create(client: &Arc<Client>, prefix: &str, after: u64) -> Result<(Self, u64), StoreError> {
        let (mut asks, questions) = mpsc::channel(QUESTIONS);
        let create = WatchCreateRequest {
            key: if prefix.is_empty() { vec![0] } else { prefix.into() },
            range_end: end(prefix),
            start_revision: signed(after.saturating_add(1)),
            prev_kv: true,
        };
        let create = WatchRequest { ask: Some(WatchAsk::Create(create)) };
        asks.try_send(create).map_err(|_| closed())?;
        let answers = client.watch(questions).await?;
        let max_asks = u32::try_from(client.timeout().as_secs()).unwrap_or(u32::MAX).max(1);
        let mut watch = Self { asks, answers, after, told: after, asked: 0, max_asks };
        let late = |_| StoreError::Unavailable("etcd does not begin the watch".to_owned());
        let created = time::timeout(client.timeout(), watch.answer()).await.map_err(late)??;
        if !created.created || created.canceled {
            return Err(watch.ended(&created));
        }
        Ok((watch, newest(created.header)?))
    }

    async fn next(&mut self) -> Result<Changes, StoreError> {
        loop {
            let Ok(answer) = time::timeout(PROGRESS, self.answer()).await else {
                self.ask_for_progress()?;
                continue;
            };
            let answer = answer?;
            self.asked = 0;
            if answer.canceled {
                return Err(self.ended(&answer));
            }
            let changes = answer.events.into_iter().map(change).collect::<Result<Vec<_>, _>>()?;
            let header = newest(answer.header)?;
            if let Some(changes) = advance(self.told, changes, header)? {
                self.told = changes.revision;
                return Ok(changes);
            }
        }
    }

    fn ask_for_progress(&mut self) -> Result<(), StoreError> {
        if self.asked == self.max_asks {
            return Err(StoreError::Unavailable("etcd does not answer on the watch".to_owned()));
        }
        self.asked += 1;
        let ask = WatchRequest { ask: Some(WatchAsk::Progress(WatchProgressRequest {})) };
        self.asks.try_send(ask).map_err(|_| closed())
    }

    async fn answer(&mut self) -> Result<WatchResponse, StoreError> {
        match self.answers.message().await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(closed()),
            Err(status) => Err(StoreError::Unavailable(described(&status))),
        }
    }

    fn ended(&self, answer: &WatchResponse) -> StoreError {
        match unsigned(answer.compact_revision) {
            Ok(0) => StoreError::Unavailable(format!("etcd ends the watch: {}", answer.cancel_reason)),
            Ok(oldest) => StoreError::Compacted { asked: self.after, oldest },
            Err(error) => error,
        }
    }
}

/// The new changes in an answer; `None` if there is nothing new.
///
/// etcd before 3.4.25 and 3.5.8 may send a change after a progress notice of a later revision (etcd-io/etcd#15220). The watch
/// ends then and its reader has to list again, because a reader that continued from the notice would miss the change.
fn advance(told: u64, changes: Vec<Change>, header: u64) -> Result<Option<Changes>, StoreError> {
    if let Some(late) = changes.iter().find(|change| change.revision <= told) {
        return Err(StoreError::Missed(format!(
            "etcd sent revision {} after it had reported that everything up to revision {told} was sent; etcd 3.4.25 and \
             3.5.8 fix this: upgrade etcd",
            late.revision
        )));
    }
    // With changes, the header has the revision of the store, not of the watch.
    let revision = changes.last().map_or(header, |last| last.revision);
    Ok((revision > told).then_some(Changes { changes, revision }))
}

fn change(event: Event) -> Result<Change, StoreError> {
    let kind = EventType::try_from(event.kind).map_err(|_| damaged("an event is of an unknown kind"))?;
    let now = entry(event.kv.ok_or_else(|| damaged("an event has no key"))?)?;
    let before = event.prev_kv.map(entry).transpose()?;
    let (key, revision) = (now.key.clone(), now.mod_revision);
    let now = (kind == EventType::Put).then_some(now);
    Ok(Change { key, revision, now, before })
}

fn closed() -> StoreError {
    StoreError::Unavailable("etcd has ended the watch".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Change, Changes, StoreError, advance};

    fn changes(revisions: &[u64]) -> Vec<Change> {
        let change = |&revision| Change { key: "/a".to_owned(), revision, now: None, before: None };
        revisions.iter().map(change).collect()
    }

    #[test]
    fn a_change_after_a_later_progress_notice_ends_the_watch() {
        let told = |revisions: &[u64], revision| Ok(Some(Changes { changes: changes(revisions), revision }));
        for (told_until, revisions, header, expected) in [
            (5, &[][..], 5, Ok(None)),
            (5, &[], 9, told(&[], 9)),
            (5, &[6, 8], 9, told(&[6, 8], 8)),
            (5, &[6, 6], 6, told(&[6, 6], 6)),
            // An old etcd: progress up to 9, then an earlier change.
            (9, &[8], 9, Err(())),
            (9, &[9, 10], 10, Err(())),
        ] {
            let found = advance(told_until, changes(revisions), header);
            if let Err(error) = &found {
                assert!(matches!(error, StoreError::Missed(_)), "{error}");
            }
            assert_eq!(found.map_err(drop), expected, "{told_until} {revisions:?} {header}");
        }
    }
}
