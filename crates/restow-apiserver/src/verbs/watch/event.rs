//! Encodes the events of a watch.

use bytes::{BufMut as _, Bytes, BytesMut};
use restow_store::{Change, Entry};
use serde_json::{Value, json};

use crate::http::json;
use crate::http::negotiation::Form;
use crate::http::status::StatusError;
use crate::object::stored::{DecodeScope, set_version};
use crate::verbs::api::Api;
use crate::verbs::query::ListQuery;

/// The annotation of the bookmark after the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Encodes events as frames.
pub(super) struct EventEncoder {
    query: ListQuery,
    decode_scope: DecodeScope,
    // The columns of a Table are sent once.
    begun: bool,
}

impl EventEncoder {
    pub(super) fn new(query: ListQuery) -> Self {
        let decode_scope = query.view.decode_scope(&query.selection);
        Self { query, decode_scope, begun: false }
    }

    /// Encodes existing objects, which are in the version of the view.
    pub(super) fn added(&mut self, objects: Vec<Value>) -> Bytes {
        let mut bytes = BytesMut::new();
        for object in objects {
            self.append(&mut bytes, "ADDED", object);
        }
        bytes.freeze()
    }

    /// Encodes the selected changes.
    pub(super) async fn changed(&mut self, api: &Api, changes: Vec<Change>) -> Result<Bytes, StatusError> {
        let mut bytes = BytesMut::new();
        for change in changes {
            let (was_there, is_new) = (change.before.is_some(), is_new(&change));
            let now = self.selected(api, change.now)?;
            // The former object is decoded only if it is shown or needed for selection: it may be unreadable.
            let before = match &now {
                Some(_) if self.query.selection.is_all() => None,
                _ => self.selected(api, change.before)?,
            };
            let (kind, mut object) = match (before, now) {
                (None, Some(now)) if self.query.selection.is_all() && !is_new => ("MODIFIED", now),
                // The former object may be compacted, but it is known that there was one.
                (None, Some(now)) if !was_there && !is_new => ("MODIFIED", now),
                (None, Some(now)) => ("ADDED", now),
                (Some(_), Some(now)) => ("MODIFIED", now),
                (Some(before), None) => ("DELETED", before),
                (None, None) => continue,
            };
            set_version(&mut object, change.revision);
            let object = self.query.view.object(api, object).await?;
            self.append(&mut bytes, kind, object);
        }
        Ok(bytes.freeze())
    }

    /// A bookmark: all changes up to a revision were sent.
    pub(super) fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let view = &self.query.view;
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if initial_end {
            metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        }
        let object = match view.form {
            Form::Whole | Form::Table => json!({
                "apiVersion": view.api_version, "kind": view.resource.kind, "metadata": metadata,
            }),
            Form::Metadata => json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata,
            }),
        };
        let mut bytes = BytesMut::new();
        begin(&mut bytes, "BOOKMARK");
        match view.form {
            Form::Table => {
                let row = json!({ "cells": [], "object": object });
                let table = json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "Table", "columnDefinitions": null,
                    "metadata": { "resourceVersion": revision.to_string() }, "rows": [row],
                });
                json::append(&mut bytes, &table);
            }
            Form::Whole | Form::Metadata => json::append(&mut bytes, &object),
        }
        bytes.put_slice(b"}\n");
        bytes.freeze()
    }

    /// The object of an entry, if it is selected.
    fn selected(&self, api: &Api, entry: Option<Entry>) -> Result<Option<Value>, StatusError> {
        let Some(entry) = entry else { return Ok(None) };
        let object = api.decode(&self.query.resource, entry, self.decode_scope)?;
        Ok(Some(object).filter(|object| self.query.selection.matches(object)))
    }

    fn append(&mut self, bytes: &mut BytesMut, kind: &str, object: Value) {
        begin(bytes, kind);
        self.query.view.append_one(bytes, object, !self.begun);
        self.begun = true;
        bytes.put_slice(b"}\n");
    }
}

fn is_new(change: &Change) -> bool {
    change.now.as_ref().is_some_and(|now| now.create_revision == now.mod_revision)
}

fn begin(bytes: &mut BytesMut, kind: &str) {
    bytes.put_slice(br#"{"type":""#);
    bytes.put_slice(kind.as_bytes());
    bytes.put_slice(br#"","object":"#);
}

/// The error event that ends a watch.
pub(super) fn error(failure: &StatusError) -> Bytes {
    let mut bytes = BytesMut::new();
    begin(&mut bytes, "ERROR");
    json::append(&mut bytes, &failure.to_status());
    bytes.put_slice(b"}\n");
    bytes.freeze()
}
