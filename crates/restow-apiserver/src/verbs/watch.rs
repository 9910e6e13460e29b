//! Watches: what is there if it is asked for, then every change in order.

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
use crate::http::status::Failure;
use crate::object::meta::name;
use crate::object::stored::refused;
use crate::registry::custom_resource::Custom;
use crate::verbs::api::Api;
use crate::verbs::list::{Pages, Start};
use crate::verbs::query::Wanted;

use begin::{Begin, begin};
use event::Frames;

/// How many batches of events may wait for a slow reader; more stay in the store.
const AHEAD: usize = 16;
/// How often a watch tells how far it is.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The shortest time a watch lasts that was not told how long, in seconds; the longest is twice that.
const LASTS: u64 = 1800;

/// How long a watch whose definition has gone may take to tell what had happened until then.
const LAST_EVENTS: Duration = Duration::from_secs(5);

type Feed = BoxStream<'static, Result<Changes, StoreError>>;

/// Answers a watch.
pub(crate) async fn watch(api: &Arc<Api>, wanted: Wanted, options: &Options) -> Result<Body, Failure> {
    let begin = begin(options)?;
    let seconds = options.timeout_seconds.filter(|seconds| *seconds > 0);
    let lasts = Duration::from_secs(seconds.unwrap_or_else(|| LASTS + fastrand::u64(..LASTS)));
    let mut pages = None;
    let after = match begin {
        Begin::After(revision) => revision,
        Begin::Now => api.store.revision().await.map_err(|error| refused(&error))?,
        Begin::WithAll { at_least, .. } => {
            let start = Start { at_least, ..Start::default() };
            let mut all = Pages::new(Arc::clone(api), wanted.clone(), start, 0);
            let first = all.next().await?;
            let revision = all.revision();
            pages = Some((all, first));
            revision
        }
    };
    let feed = feed(api, &wanted, after).await;
    let (sender, receiver) = mpsc::channel(AHEAD);
    let pump = Pump {
        api: Arc::clone(api),
        custom: wanted.resource.custom().cloned(),
        frames: Frames::new(wanted),
        sender,
        bookmarks: options.bookmarks,
        after,
        end: Instant::now() + lasts,
    };
    let ended = matches!(begin, Begin::WithAll { marked: true, .. });
    tokio::spawn(async move {
        let stopped = pump.api.stopped.clone();
        let gone = pump.sender.clone();
        tokio::select! {
            biased;
            () = stopped.cancelled() => {}
            () = gone.closed() => {}
            _ = pump.run(pages, feed, ended) => {}
        }
    });
    let frames = stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|bytes: Bytes| (io::Result::Ok(bytes), receiver))
    });
    Ok(Body::frames(frames))
}

async fn feed(api: &Api, wanted: &Wanted, after: u64) -> Result<Feed, StoreError> {
    let prefix = wanted.range();
    match api.store.watch(&prefix, after).await {
        // Who knows of a later revision than this store's newest hears of what comes behind it.
        Err(StoreError::Future { newest, .. }) => api.store.watch(&prefix, newest).await,
        other => other,
    }
}

/// Ends when the definition of a custom resource has changed or gone; never for a built-in.
async fn superseded(custom: Option<&Custom>) {
    match custom {
        Some(custom) => custom.superseded().await,
        None => std::future::pending().await,
    }
}

/// The reader has gone.
struct Gone;

struct Pump {
    api: Arc<Api>,
    custom: Option<Arc<Custom>>,
    frames: Frames,
    sender: mpsc::Sender<Bytes>,
    bookmarks: bool,
    after: u64,
    end: Instant,
}

impl Pump {
    async fn run(
        mut self,
        pages: Option<(Pages, Option<crate::verbs::list::Page>)>,
        feed: Result<Feed, StoreError>,
        marked: bool,
    ) -> Result<(), Gone> {
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
    ) -> Result<Result<(), Failure>, Gone> {
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

    async fn follow(&mut self, mut feed: Feed) -> Result<(), Gone> {
        let mut told = Instant::now();
        // Once its definition has changed or gone: the revision behind which nothing more is told.
        let mut last = None;
        while last.is_none_or(|last| self.after < last) {
            let wake = self.end.min(told + BOOKMARK_EVERY);
            let next = tokio::select! {
                biased;
                () = superseded(self.custom.as_deref()), if last.is_none() => {
                    last = Some(self.last_revision().await);
                    self.end = self.end.min(Instant::now() + LAST_EVENTS);
                    continue;
                }
                () = tokio::time::sleep_until(wake) => {
                    if self.bookmarks {
                        // It says no more than was told: changes that wait are told after it.
                        let frame = self.frames.bookmark(self.after, false);
                        self.send(frame).await?;
                    }
                    told = Instant::now();
                    if told >= self.end {
                        return Ok(());
                    }
                    continue;
                }
                changes = feed.next() => changes,
            };
            match next {
                Some(changes) => {
                    if !self.tell(changes).await? {
                        return Ok(());
                    }
                }
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// What a watch that goes by an old definition still tells: nothing, because the client that watches again from
    /// where it is sees the rest as it is defined now. Where the definition has gone nobody can watch again, and the
    /// deletions that came before are told.
    async fn last_revision(&self) -> u64 {
        let served = self.api.registry.served();
        let name = self.custom.as_ref().map(|custom| name(&custom.object)).unwrap_or_default();
        if served.custom.contains_key(name) {
            return 0;
        }
        self.api.store.revision().await.unwrap_or_default()
    }

    /// Tells of changes, and whether more can follow.
    async fn tell(&mut self, changes: Result<Changes, StoreError>) -> Result<bool, Gone> {
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

    async fn fail(&mut self, failure: &Failure) -> Result<(), Gone> {
        self.send(event::error(failure)).await
    }

    async fn send(&self, frame: Bytes) -> Result<(), Gone> {
        if frame.is_empty() {
            return Ok(());
        }
        self.sender.send(frame).await.map_err(|_| Gone)
    }
}
