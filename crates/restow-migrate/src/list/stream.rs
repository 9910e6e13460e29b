//! Lists the metadata of a resource's objects as one stream of initial watch events.
//!
//! Neither the server nor restow holds the whole list in memory: restow reads one page at a time from the connection. A
//! stream has no continue tokens and always starts at the first object. So a stream that breaks is not opened again: the
//! list goes on in chunks after the last key, which the stream's order allows. kube-apiserver ends streams that are read
//! slowly: its watch cache when the events of restow's own writes pile up, etcd when it has compacted the revision.

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

/// How many times a stream is opened that shows no object, before the list goes on in chunks.
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
    /// The key of the last object.
    previous: Option<String>,
    buffer: BytesMut,
    /// How many bytes of the buffer contain no line end.
    searched: usize,
}

/// One line of the stream.
enum Line {
    Item(Item),
    End,
    Other,
}

/// Why a page could not be filled.
enum Interruption {
    /// The connection failed.
    Passing(String),
    /// No other connection would help.
    Final(StreamError),
}

/// Why the stream cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    /// The server does not stream this list.
    #[error("the server does not stream this list: {0}")]
    Refused(String),
    /// The objects are not sorted by key, so a broken stream could not be continued.
    #[error("the stream is not sorted: {after:?} came after {before:?}")]
    Unsorted {
        /// The key that came first.
        before: String,
        /// The key that came after it.
        after: String,
    },
    /// The connection failed after some objects, or too many failed before the first.
    #[error("the stream broke: {0}")]
    Broken(String),
}

impl<'a> Stream<'a> {
    /// A stream of all objects.
    pub(crate) fn new(
        server: &'a Server,
        target: &'a Target,
        page_size: u32,
        waiting: &'a (dyn Waiting + Sync),
        throttle: &'a Throttle,
    ) -> Self {
        Self { server, target, waiting, throttle, page_size, last_key: None, ahead: None, open: None }
    }

    /// The rest of the list, in chunks.
    pub(crate) fn in_chunks(&self) -> Chunks<'a> {
        let token = self.last_key.as_deref().map(|key| Token::behind(key, NEWEST).encode());
        Chunks::new(self.server, self.target, self.page_size, token, self.waiting, self.throttle)
    }

    /// The next page.
    pub(crate) async fn next(&mut self) -> Result<Page, StreamError> {
        let mut tries = 0;
        loop {
            // A page that was begun when the stream broke is listed again, in chunks.
            let mut page = Page::default();
            match self.fill(&mut page).await {
                Ok(()) => return Ok(page),
                Err(Interruption::Final(error)) => return Err(error),
                Err(Interruption::Passing(why)) => {
                    self.open = None;
                    tries += 1;
                    if self.last_key.is_some() || !page.items.is_empty() || tries >= TRIES {
                        return Err(StreamError::Broken(why));
                    }
                    let wait = backoff(tries, None);
                    self.waiting.waiting(&why, wait);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Reads until the page is full or the list has ended.
    ///
    /// A page ends only before an object with a greater key; otherwise the list could not go on after it.
    async fn fill(&mut self, page: &mut Page) -> Result<(), Interruption> {
        if let Some(item) = self.ahead.take() {
            page.items.push(item);
        }
        if self.open.is_none() {
            self.open = Some(connect(self.server, self.target).await?);
        }
        let mut kept: usize = page.items.iter().map(kept_bytes).sum();
        while let Some(open) = &mut self.open {
            let line = open.line(self.target, self.throttle).await.map_err(Interruption::Passing)?;
            let ended_early = || Interruption::Passing("the stream ended early".to_owned());
            let line = line.ok_or_else(ended_early)?;
            match line {
                Line::Item(item) => {
                    let key = item.key();
                    if let Some(before) = open.previous.replace(key.clone()).filter(|before| key <= *before) {
                        return Err(Interruption::Final(StreamError::Unsorted { before, after: key }));
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
        Ok(())
    }
}

/// Opens a stream. It borrows no [`Stream`], whose body cannot be shared between threads.
async fn connect(server: &Server, target: &Target) -> Result<Open, Interruption> {
    let path = format!(
        "{}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
        target.list_path()
    );
    match server.open(Method::GET, &path, METADATA, None).await {
        Ok(response) if response.status() == 200 => {
            let body = response.into_body();
            Ok(Open { body, previous: None, buffer: BytesMut::new(), searched: 0 })
        }
        Ok(response) => {
            let why = format!("it answered {}", response.status().as_u16());
            // A watch cache that is still filling says so, and one that never fills is given up after some tries.
            let passing = matches!(response.status().as_u16(), 300..=399 | 401 | 404 | 429 | 500..=504);
            Err(if passing {
                Interruption::Passing(why)
            } else {
                Interruption::Final(StreamError::Refused(why))
            })
        }
        Err(error) => Err(Interruption::Passing(error.to_string())),
    }
}

impl Open {
    /// The next line. Its size is bounded, because it contains one object.
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

/// How many bytes of an object stay in memory, apart from its names.
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
        // Changes that arrive before the end were written by others, in the storage version.
        _ => Ok(Line::Other),
    }
}
