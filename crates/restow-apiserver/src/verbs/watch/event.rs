//! The frames of a watch.

use bytes::{BufMut as _, Bytes, BytesMut};
use restow_store::{Change, Entry};
use serde_json::{Value, json};

use crate::http::json;
use crate::http::negotiation::Form;
use crate::http::status::Failure;
use crate::object::stored::{Extent, set_version};
use crate::verbs::api::Api;
use crate::verbs::query::Wanted;

/// The annotation of the bookmark behind what was there.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Writes frames.
pub(super) struct Frames {
    wanted: Wanted,
    extent: Extent,
    // A table's columns are told once.
    begun: bool,
}

impl Frames {
    pub(super) fn new(wanted: Wanted) -> Self {
        let extent = wanted.view.extent(&wanted.selection);
        Self { wanted, extent, begun: false }
    }

    /// Objects that are there, in the version they are shown in.
    pub(super) fn added(&mut self, objects: Vec<Value>) -> Bytes {
        let mut bytes = BytesMut::new();
        for object in objects {
            self.append(&mut bytes, "ADDED", object);
        }
        bytes.freeze()
    }

    /// Changes, as far as they are to be seen.
    pub(super) async fn changed(&mut self, api: &Api, changes: Vec<Change>) -> Result<Bytes, Failure> {
        let mut bytes = BytesMut::new();
        for change in changes {
            let (was_there, is_new) = (change.before.is_some(), is_new(&change));
            let now = self.selected(api, change.now)?;
            // What was there is read only if it is shown, or has to be selected by: it may be unreadable.
            let before = match &now {
                Some(_) if self.wanted.selection.is_all() => None,
                _ => self.selected(api, change.before)?,
            };
            let (kind, mut object) = match (before, now) {
                (None, Some(now)) if self.wanted.selection.is_all() && !is_new => ("MODIFIED", now),
                // What was there may have been compacted away; that something was is known still.
                (None, Some(now)) if !was_there && !is_new => ("MODIFIED", now),
                (None, Some(now)) => ("ADDED", now),
                (Some(_), Some(now)) => ("MODIFIED", now),
                (Some(before), None) => ("DELETED", before),
                (None, None) => continue,
            };
            set_version(&mut object, change.revision);
            let object = self.wanted.view.object(api, object).await?;
            self.append(&mut bytes, kind, object);
        }
        Ok(bytes.freeze())
    }

    /// Says that all changes up to a revision were told.
    pub(super) fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let view = &self.wanted.view;
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

    /// The object of an entry, if it is wanted.
    fn selected(&self, api: &Api, entry: Option<Entry>) -> Result<Option<Value>, Failure> {
        let Some(entry) = entry else { return Ok(None) };
        let object = api.decode(&self.wanted.resource, entry, self.extent)?;
        Ok(Some(object).filter(|object| self.wanted.selection.matches(object)))
    }

    fn append(&mut self, bytes: &mut BytesMut, kind: &str, object: Value) {
        begin(bytes, kind);
        self.wanted.view.append_one(bytes, object, !self.begun);
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

/// Says why a watch ends.
pub(super) fn error(failure: &Failure) -> Bytes {
    let mut bytes = BytesMut::new();
    begin(&mut bytes, "ERROR");
    json::append(&mut bytes, &failure.to_status());
    bytes.put_slice(b"}\n");
    bytes.freeze()
}
