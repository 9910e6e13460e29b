//! Watch: existing objects if they are requested, then every change in order.

mod begin;
mod event;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use restow_clock::Instant;
use restow_store::{Changes, StoreError};
use tokio::sync::mpsc;

use crate::http::body::Body;
use crate::http::options::Options;
use crate::http::status::StatusError;
use crate::object::meta::name;
use crate::object::stored::refused;
use crate::registry::custom_resource::ServedDefinition;
use crate::verbs::api::Api;
use crate::verbs::list::{ListStart, Pages};
use crate::verbs::query::ListQuery;

use begin::{WatchStart, begin};
use event::EventEncoder;

/// How many batches of events may wait for a slow client. More stay in the store.
const AHEAD: usize = 16;
/// How often a watch sends a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The shortest default duration of a watch, in seconds; the longest is twice that.
const LASTS: u64 = 1800;

/// How long a watch may take to report earlier events after its definition was deleted.
const LAST_EVENTS: Duration = Duration::from_secs(5);

type Feed = BoxStream<'static, Result<Changes, StoreError>>;

/// Answers a watch.
pub(crate) async fn watch(api: &Arc<Api>, query: ListQuery, options: &Options) -> Result<Body, StatusError> {
    let begin = begin(options)?;
    let seconds = options.timeout_seconds.filter(|seconds| *seconds > 0);
    let lasts = Duration::from_secs(seconds.unwrap_or_else(|| LASTS + fastrand::u64(..LASTS)));
    let mut pages = None;
    let after = match begin {
        WatchStart::After(revision) => revision,
        WatchStart::Now => api.store.revision().await.map_err(|error| refused(&error))?,
        WatchStart::WithAll { at_least, .. } => {
            let start = ListStart { at_least, ..ListStart::default() };
            let mut all = Pages::new(Arc::clone(api), query.clone(), start, 0);
            let first = all.next().await?;
            let revision = all.revision();
            pages = Some((all, first));
            revision
        }
    };
    let feed = feed(api, &query, after).await;
    let (sender, receiver) = mpsc::channel(AHEAD);
    let watch = WatchStream {
        api: Arc::clone(api),
        custom: query.resource.custom().cloned(),
        frames: EventEncoder::new(query),
        sender,
        bookmarks: options.bookmarks,
        after,
        end: Instant::now() + lasts,
    };
    let ended = matches!(begin, WatchStart::WithAll { marked: true, .. });
    tokio::spawn(async move {
        let stopped = watch.api.stopped.clone();
        let gone = watch.sender.clone();
        tokio::select! {
            biased;
            () = stopped.cancelled() => {}
            () = gone.closed() => {}
            _ = watch.run(pages, feed, ended) => {}
        }
    });
    let frames = stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|bytes: Bytes| (io::Result::Ok(bytes), receiver))
    });
    Ok(Body::frames(frames))
}

async fn feed(api: &Api, query: &ListQuery, after: u64) -> Result<Feed, StoreError> {
    let prefix = query.range();
    match api.store.watch(&prefix, after).await {
        // A client that knows a later revision than the newest one gets the changes after the newest one.
        Err(StoreError::Future { newest, .. }) => api.store.watch(&prefix, newest).await,
        other => other,
    }
}

/// Completes when the definition of a custom resource has changed or is deleted; never for a built-in resource.
async fn superseded(custom: Option<&ServedDefinition>) {
    match custom {
        Some(custom) => custom.superseded().await,
        None => std::future::pending().await,
    }
}

/// The client has closed the watch.
struct ClientGone;

struct WatchStream {
    api: Arc<Api>,
    custom: Option<Arc<ServedDefinition>>,
    frames: EventEncoder,
    sender: mpsc::Sender<Bytes>,
    bookmarks: bool,
    after: u64,
    end: Instant,
}

impl WatchStream {
    async fn run(
        mut self,
        pages: Option<(Pages, Option<crate::verbs::list::Page>)>,
        feed: Result<Feed, StoreError>,
        marked: bool,
    ) -> Result<(), ClientGone> {
        if let Some((pages, first)) = pages {
            if let Err(failure) = self.initial(pages, first).await? {
                return self.fail(&failure).await;
            }
            if marked && self.bookmarks {
                let frame = self.frames.bookmark(self.after, true);
                self.send(frame).await?;
            }
        }
        match feed {
            Ok(feed) => self.follow(feed).await,
            Err(error) => self.fail(&refused(&error)).await,
        }
    }

    async fn initial(
        &mut self,
        mut pages: Pages,
        first: Option<crate::verbs::list::Page>,
    ) -> Result<Result<(), StatusError>, ClientGone> {
        let mut page = first;
        while let Some(objects) = page.map(|page| page.objects) {
            let frame = self.frames.added(objects);
            self.send(frame).await?;
            page = match pages.next().await {
                Ok(page) => page,
                Err(failure) => return Ok(Err(failure)),
            };
        }
        Ok(Ok(()))
    }

    async fn follow(&mut self, mut feed: Feed) -> Result<(), ClientGone> {
        let mut last_bookmark = Instant::now();
        // After its definition has changed or is deleted: the last revision to report.
        let mut last = None;
        while last.is_none_or(|last| self.after < last) {
            let wake = self.end.min(last_bookmark + BOOKMARK_EVERY);
            let next = tokio::select! {
                biased;
                () = superseded(self.custom.as_deref()), if last.is_none() => {
                    last = Some(self.last_revision().await);
                    self.end = self.end.min(Instant::now() + LAST_EVENTS);
                    continue;
                }
                () = tokio::time::sleep_until(wake) => {
                    if self.bookmarks {
                        // The bookmark covers only events that were sent: waiting changes follow it.
                        let frame = self.frames.bookmark(self.after, false);
                        self.send(frame).await?;
                    }
                    last_bookmark = Instant::now();
                    if last_bookmark >= self.end {
                        return Ok(());
                    }
                    continue;
                }
                changes = feed.next() => changes,
            };
            match next {
                Some(changes) => {
                    if !self.send_changes(changes).await? {
                        return Ok(());
                    }
                }
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// The last revision that a watch with an old definition reports. After a change it is 0: the client watches again and
    /// sees the rest under the new definition. After a deletion no client can watch again, so all earlier deletions are
    /// reported.
    async fn last_revision(&self) -> u64 {
        let served = self.api.registry.served();
        let name = self.custom.as_ref().map(|custom| name(&custom.object)).unwrap_or_default();
        if served.custom.contains_key(name) {
            return 0;
        }
        self.api.store.revision().await.unwrap_or_default()
    }

    /// Sends changes. Returns whether the watch continues.
    async fn send_changes(&mut self, changes: Result<Changes, StoreError>) -> Result<bool, ClientGone> {
        let changes = match changes {
            Ok(changes) => changes,
            Err(error) => {
                self.fail(&refused(&error)).await?;
                return Ok(false);
            }
        };
        let revision = changes.revision;
        let news = changes.changes.into_iter().filter(|change| change.revision > self.after).collect();
        match self.frames.changed(&self.api, news).await {
            Ok(frame) => self.send(frame).await?,
            Err(failure) => {
                self.fail(&failure).await?;
                return Ok(false);
            }
        }
        self.after = self.after.max(revision);
        Ok(true)
    }

    async fn fail(&mut self, failure: &StatusError) -> Result<(), ClientGone> {
        self.send(event::error(failure)).await
    }

    async fn send(&self, frame: Bytes) -> Result<(), ClientGone> {
        if frame.is_empty() {
            return Ok(());
        }
        self.sender.send(frame).await.map_err(|_| ClientGone)
    }
}
