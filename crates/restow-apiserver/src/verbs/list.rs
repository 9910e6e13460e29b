//! List: pages at one revision, and complete lists that are streamed while they are read.

mod pages;
mod start;

use std::io;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::stream;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::http::body::Body;
use crate::http::json;
use crate::http::negotiation::Form;
use crate::http::options::Options;
use crate::http::status::StatusError;
use crate::verbs::api::Api;
use crate::verbs::query::ListQuery;
use crate::verbs::view::View;

use pages::{MOST_ENTRIES, PAGE_BYTES};
pub(crate) use pages::{Page, Pages};
pub(crate) use start::{ListStart, refuse, revision, start};

/// How many pages of a long list may wait for a slow client.
const AHEAD: usize = 2;

/// Answers a list: a short one at once, a long one page by page.
pub(crate) async fn list(api: &Arc<Api>, query: ListQuery, options: &Options) -> Result<Body, StatusError> {
    let start = start(options)?;
    let mut pages = Pages::new(Arc::clone(api), query.clone(), start, options.limit);
    let mut writer = Writer::new(query.view.clone());
    // An error before the first page is sent can still be answered with a Status.
    while writer.count < MOST_ENTRIES && writer.bytes.len() < PAGE_BYTES {
        let Some(page) = pages.next().await? else { break };
        writer = writer.add(api, &query, page).await?;
    }
    if pages.is_done() {
        return Ok(Body::from(writer.end(&pages)));
    }
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(send_rest(Arc::clone(api), pages, writer, query, sender));
    let frames = stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|frame: io::Result<Bytes>| (frame, receiver))
    });
    Ok(Body::frames(frames))
}

async fn send_rest(
    api: Arc<Api>,
    pages: Pages,
    writer: Writer,
    query: ListQuery,
    sender: mpsc::Sender<io::Result<Bytes>>,
) {
    if let Err(failure) = send_pages(&api, pages, writer, &query, &sender).await {
        // It is too late for a Status: the client sees a truncated list.
        tracing::warn!("a list ended early: {failure}");
        let _ = sender.send(Err(io::Error::other(failure))).await;
    }
}

async fn send_pages(
    api: &Api,
    mut pages: Pages,
    mut writer: Writer,
    query: &ListQuery,
    sender: &mpsc::Sender<io::Result<Bytes>>,
) -> Result<(), StatusError> {
    loop {
        if sender.send(Ok(writer.take())).await.is_err() {
            return Ok(());
        }
        match pages.next().await? {
            Some(page) => writer = writer.add(api, query, page).await?,
            None => break,
        }
    }
    let _ = sender.send(Ok(writer.end(&pages))).await;
    Ok(())
}

/// Writes a list, with its metadata last, because they are not known before.
struct Writer {
    view: View,
    bytes: BytesMut,
    /// How many objects are written.
    count: usize,
}

impl Writer {
    fn new(view: View) -> Self {
        let mut bytes = BytesMut::with_capacity(4096);
        let head = match view.form {
            Form::Whole => format!(r#"{{"apiVersion":"{}","items":["#, view.api_version),
            Form::Metadata => r#"{"apiVersion":"meta.k8s.io/v1","items":["#.to_owned(),
            Form::Table => r#"{"apiVersion":"meta.k8s.io/v1","columnDefinitions":"#.to_owned(),
        };
        bytes.put_slice(head.as_bytes());
        if view.form == Form::Table {
            json::append(&mut bytes, &view.headers());
            bytes.put_slice(br#","rows":["#);
        }
        Self { view, bytes, count: 0 }
    }

    async fn add(mut self, api: &Api, query: &ListQuery, page: Page) -> Result<Self, StatusError> {
        let view = query.view.clone();
        let work = move || {
            for object in page.objects {
                if self.count > 0 {
                    self.bytes.put_u8(b',');
                }
                self.count += 1;
                view.append_item(&mut self.bytes, view.item(object));
            }
            Ok(self)
        };
        api.workers.run(page.bytes, work).await
    }

    fn take(&mut self) -> Bytes {
        self.bytes.split().freeze()
    }

    fn end(&mut self, pages: &Pages) -> Bytes {
        let kind = match self.view.form {
            Form::Whole => self.view.list_kind.as_str(),
            Form::Metadata => "PartialObjectMetadataList",
            Form::Table => "Table",
        };
        self.bytes.put_slice(br#"],"kind":"#);
        json::append(&mut self.bytes, kind);
        self.bytes.put_slice(br#","metadata":"#);
        json::append(&mut self.bytes, &metadata(pages));
        self.bytes.put_slice(b"}\n");
        self.take()
    }
}

fn metadata(pages: &Pages) -> Value {
    let mut metadata = Map::new();
    if let Some((token, remaining)) = pages.rest() {
        metadata.insert("continue".to_owned(), json!(token));
        if let Some(remaining) = remaining {
            metadata.insert("remainingItemCount".to_owned(), json!(remaining));
        }
    }
    metadata.insert("resourceVersion".to_owned(), json!(pages.revision().to_string()));
    Value::Object(metadata)
}
