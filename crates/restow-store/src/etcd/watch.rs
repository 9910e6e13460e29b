//! One watch in etcd, on a stream of its own: progress is told for a stream, so that it tells of this watch alone.

use std::{sync::Arc, time::Duration};

use futures::{
    channel::mpsc,
    stream::{self, BoxStream, StreamExt},
};
use tokio::time;
use tonic::Streaming;

use super::{
    client::{Client, described},
    damaged, end, entry,
    messages::{
        Event, EventType, WatchAsk, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
    },
    newest, signed, unsigned,
};
use crate::{Change, Changes, StoreError};

/// How often a watch without changes asks how far it is.
const PROGRESS: Duration = Duration::from_secs(1);

/// Questions on a stream that have not been sent yet: when there are more, etcd does not read them.
const QUESTIONS: usize = 8;

/// A watch in its course.
struct Watch {
    asks: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    after: u64,
    told: u64,
    /// How often it has asked for progress since it last heard anything.
    asked: u32,
    /// How often that may be.
    patience: u32,
}

/// Starts a watch; tells the newest revision that its member knows.
pub(super) async fn start(
    client: &Arc<Client>,
    prefix: &str,
    after: u64,
) -> Result<(BoxStream<'static, Result<Changes, StoreError>>, u64), StoreError> {
    let (watch, seen) = Watch::create(client, prefix, after).await?;
    // The watch has ended once it is gone: after an error nothing more comes.
    let next = |watch: Option<Watch>| async move {
        let mut watch = watch?;
        match watch.next().await {
            Ok(changes) => Some((Ok(changes), Some(watch))),
            Err(error) => Some((Err(error), None)),
        }
    };
    Ok((stream::unfold(Some(watch), next).boxed(), seen))
}

/// The oldest revision that can be read, for one that cannot: only to watches does etcd tell it.
pub(super) async fn oldest(client: &Arc<Client>, asked: u64) -> Result<u64, StoreError> {
    let (mut watch, _) = Watch::create(client, "\0", asked.saturating_sub(1)).await?;
    let late = |_| StoreError::Unavailable("etcd does not tell what is compacted".to_owned());
    match time::timeout(client.timeout(), watch.next()).await.map_err(late)? {
        Err(StoreError::Compacted { oldest, .. }) => Ok(oldest),
        Err(error) => Err(error),
        // It was not compacted when it was asked for again.
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
        let patience = u32::try_from(client.timeout().as_secs()).unwrap_or(u32::MAX).max(1);
        let mut watch = Self { asks, answers, after, told: after, asked: 0, patience };
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
        if self.asked == self.patience {
            return Err(StoreError::Unavailable("etcd does not go on with the watch".to_owned()));
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

/// What an answer tells beyond what was told; none if that is nothing.
///
/// A change that comes behind a progress notice of a later revision was missed by whoever relied on the notice: etcd
/// before 3.4.25 and 3.5.8 does that (etcd-io/etcd#15220). The watch ends, and its reader has to list again: it
/// would miss the change if it went on from the notice.
fn advance(told: u64, changes: Vec<Change>, header: u64) -> Result<Option<Changes>, StoreError> {
    if let Some(late) = changes.iter().find(|change| change.revision <= told) {
        return Err(StoreError::Missed(format!(
            "etcd told of revision {} after it had said that all up to {told} was told: this is fixed in etcd 3.4.25 \
             and 3.5.8",
            late.revision
        )));
    }
    // With changes, the header tells how far the store is, not the watch.
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
    fn a_change_behind_a_progress_notice_ends_the_watch() {
        let told = |revisions: &[u64], revision| Ok(Some(Changes { changes: changes(revisions), revision }));
        for (told_until, revisions, header, expected) in [
            (5, &[][..], 5, Ok(None)),
            (5, &[], 9, told(&[], 9)),
            (5, &[6, 8], 9, told(&[6, 8], 8)),
            (5, &[6, 6], 6, told(&[6, 6], 6)),
            // An old etcd: progress up to 9, then what happened before.
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
