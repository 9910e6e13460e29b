//! Lists the metadata of a resource's objects as one stream of initial watch events.
//!
//! The server keeps no list in memory for it, and restow no more than a page: what is not yet wanted waits in
//! the connection. A stream has no tokens, but it is sorted by key, so a broken one goes on behind the last key.

use bytes::BytesMut;
use http::Method;
use http_body_util::BodyExt as _;
use kube::client::Body;
use restow_core::rewrite::outcome::backoff;
use restow_core::rewrite::page::longest;
use restow_core::rewrite::token::{NEWEST, Token};

use super::chunks::Chunks;
use super::pages::{Item, Page, Target, Waiting};
use crate::client::wire::{Bookmark, Event, Object};
use crate::client::{METADATA, Server, Throttle, within};

/// How often a stream is opened anew before it is given up for chunks.
const TRIES: u32 = 5;

/// A list as a stream.
pub(crate) struct Stream<'a> {
    server: &'a Server,
    target: &'a Target,
    waiting: &'a (dyn Waiting + Sync),
    throttle: &'a Throttle,
    page_size: u32,
    last_key: Option<String>,
    /// The first object of the next page.
    ahead: Option<Item>,
    open: Option<Open>,
}

struct Open {
    body: Body,
    /// The key this connection goes on behind; what comes before was seen through another.
    behind: Option<String>,
    /// The last key that came.
    previous: Option<String>,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
}

/// What the stream brought.
enum Line {
    Item(Item),
    End,
    Other,
}

/// Why the stream cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    /// The server does not stream lists, or not now.
    #[error("the server does not stream this list: {0}")]
    Refused(String),
    /// Objects came out of order, so that a broken stream could not be continued.
    #[error("the stream is not sorted: {after:?} came behind {before:?}")]
    Unsorted {
        /// The key that came first.
        before: String,
        /// The key that came behind it.
        after: String,
    },
    /// It broke again and again.
    #[error("the stream broke {TRIES} times: {0}")]
    Broken(String),
}

impl<'a> Stream<'a> {
    /// A stream that goes on behind a key, or from the beginning.
    pub(crate) fn new(
        server: &'a Server,
        target: &'a Target,
        page_size: u32,
        last_key: Option<String>,
        waiting: &'a (dyn Waiting + Sync),
        throttle: &'a Throttle,
    ) -> Self {
        Self { server, target, waiting, throttle, page_size, last_key, ahead: None, open: None }
    }

    /// The same list in chunks, from where this one is.
    pub(crate) fn in_chunks(&self) -> Chunks<'a> {
        let token = self.last_key.as_deref().map(|key| Token::behind(key, NEWEST).encode());
        Chunks::new(self.server, self.target, self.page_size, token, self.waiting, self.throttle)
    }

    /// The next page.
    pub(crate) async fn next(&mut self) -> Result<Page, StreamError> {
        let mut page = Page::default();
        let mut tries = 0;
        loop {
            match self.fill(&mut page).await? {
                Ok(()) => return Ok(page),
                Err(why) => {
                    self.open = None;
                    tries += 1;
                    if tries >= TRIES {
                        return Err(StreamError::Broken(why));
                    }
                    let wait = backoff(tries, None);
                    self.waiting.waiting(&why, wait);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Reads until the page is full or the list has ended; the inner error is one that may pass.
    ///
    /// A page ends only before an object with a greater key: behind any other it could not be continued.
    async fn fill(&mut self, page: &mut Page) -> Result<Result<(), String>, StreamError> {
        if let Some(item) = self.ahead.take() {
            page.items.push(item);
        }
        if self.open.is_none() {
            let behind = page.items.last().map(Item::key).or_else(|| self.last_key.clone());
            match self.connect(behind).await? {
                Ok(open) => self.open = Some(open),
                Err(why) => return Ok(Err(why)),
            }
        }
        let mut kept: usize = page.items.iter().map(kept_bytes).sum();
        while let Some(open) = &mut self.open {
            let line = match open.line(self.target, self.throttle).await {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(Err("the stream ended early".to_owned())),
                Err(why) => return Ok(Err(why)),
            };
            match line {
                Line::Item(item) => {
                    let key = item.key();
                    if let Some(before) = open.previous.replace(key.clone()).filter(|before| key <= *before) {
                        return Err(StreamError::Unsorted { before, after: key });
                    }
                    if open.behind.as_ref().is_some_and(|behind| key <= *behind) {
                        continue;
                    }
                    kept += kept_bytes(&item);
                    if page.items.len() >= self.page_size as usize || kept > longest(self.page_size, None) {
                        self.ahead = Some(item);
                        break;
                    }
                    page.items.push(item);
                }
                Line::End => {
                    page.last = true;
                    break;
                }
                Line::Other => {}
            }
        }
        if let Some(last) = page.items.last() {
            self.last_key = Some(last.key());
        }
        Ok(Ok(()))
    }

    async fn connect(&self, behind: Option<String>) -> Result<Result<Open, String>, StreamError> {
        let path = format!(
            "{}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
            self.target.list_path()
        );
        match self.server.open(Method::GET, &path, METADATA, None).await {
            Ok(response) if response.status() == 200 => {
                let body = response.into_body();
                Ok(Ok(Open { body, behind, previous: None, buffer: BytesMut::new(), searched: 0 }))
            }
            Ok(response) => {
                let why = format!("it answered {}", response.status().as_u16());
                // A watch cache that is still filling says so, and one that never fills is given up after some tries.
                let passing = matches!(response.status().as_u16(), 300..=399 | 401 | 404 | 429 | 500..=504);
                if passing { Ok(Err(why)) } else { Err(StreamError::Refused(why)) }
            }
            Err(broken) => Ok(Err(broken.to_string())),
        }
    }
}

impl Open {
    /// The next line; it is bounded, since it holds one object.
    async fn line(&mut self, target: &Target, throttle: &Throttle) -> Result<Option<Line>, String> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + end + 1);
                self.searched = 0;
                return read(&line, target).map(Some);
            }
            self.searched = self.buffer.len();
            if self.searched > longest(1, None) {
                return Err(format!("an event is longer than {} MiB", longest(1, None) >> 20));
            }
            throttle.list().await;
            match within(self.body.frame()).await.map_err(|broken| broken.to_string())? {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        throttle.transferred(data.len());
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(error.to_string()),
                None => return Ok(None),
            }
        }
    }
}

/// How many bytes of an object are kept, besides its names.
fn kept_bytes(item: &Item) -> usize {
    item.stale_fields.as_ref().map_or(0, |fields| fields.get().len())
}

fn read(line: &[u8], target: &Target) -> Result<Line, String> {
    let event: Event<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match &*event.kind {
        "ADDED" => {
            let object: Object<'_> =
                serde_json::from_str(event.object.get()).map_err(|error| error.to_string())?;
            Ok(Line::Item(target.item(object)))
        }
        "BOOKMARK" => {
            let bookmark: Bookmark =
                serde_json::from_str(event.object.get()).map_err(|error| error.to_string())?;
            let end = bookmark.metadata.annotations.get("k8s.io/initial-events-end");
            Ok(if end.is_some_and(|end| end == "true") { Line::End } else { Line::Other })
        }
        "ERROR" => Err(crate::client::wire::Status::read(event.object.get().as_bytes()).message),
        // Changes that arrive before the end were made by others, in the storage version.
        _ => Ok(Line::Other),
    }
}
