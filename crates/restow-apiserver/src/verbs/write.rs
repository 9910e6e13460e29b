//! Writes to the store, each conditioned on what was read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use restow_clock::Instant;
use restow_storageversion::custom::Write as Permit;
use restow_storageversion::gate::{Passage, Writing};
use restow_store::{Entry, Unchanged, Write, Written};
use serde_json::Value;

use crate::http::negotiation::Form;
use crate::http::status::StatusError;
use crate::object::stored::{self, DecodeScope, decode, refused};
use crate::registry::conversion::convert;
use crate::verbs::api::{Api, NOT_REGISTERED};
use crate::verbs::namespace_lifecycle;
use crate::verbs::request::ResourceRequest;
use crate::verbs::view::View;

/// How long a write waits while the storage version of its definition changes.
const DEFINITION_CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a waiting write checks again.
const EVERY: Duration = Duration::from_millis(5);

/// The permit to write objects of the request's resource, held until they are stored.
///
/// The request is updated to the current definition, which was set before writes were admitted again.
pub(crate) async fn permit(api: &Api, request: &mut ResourceRequest) -> Result<Option<Permit>, StatusError> {
    let until = Instant::now() + DEFINITION_CHANGE_TIMEOUT;
    loop {
        let target = &request.target;
        let Some(resource) = api.registry.find(&target.group, &target.version, &target.resource) else {
            return Err(StatusError::unknown_path());
        };
        let Some(custom) = resource.custom() else { return Ok(None) };
        if let Some(write) = custom.writer().write() {
            // The definition may have changed before the permit was taken.
            let now = api.registry.find(&target.group, &target.version, &target.resource);
            let resource = now.ok_or_else(StatusError::unknown_path)?;
            if !Arc::ptr_eq(&resource, &request.resource) {
                let include = request.options.include_object;
                request.view = View::new(&resource, &target.version, request.accepted, include);
                request.resource = resource;
            }
            return Ok(Some(write));
        }
        if Instant::now() >= until {
            return Err(StatusError::service_unavailable(NOT_REGISTERED));
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// A stored object, and the same in the version of the request.
pub(super) struct Current {
    /// The decrypted entry.
    pub(super) entry: Entry,
    /// Whether it would be encrypted differently now.
    pub(super) stale: bool,
    pub(super) object: Value,
}

pub(super) async fn current(
    api: &Api,
    request: &ResourceRequest,
    mut entry: Entry,
) -> Result<Current, StatusError> {
    let stale = api.decrypt(&request.resource, &mut entry)?;
    let whole = View { form: Form::Whole, ..request.view.clone() };
    let object = whole.object(api, decode(&entry, DecodeScope::Whole)?).await?;
    Ok(Current { entry, stale, object })
}

/// Converts an object of the request's version to the bytes to store.
pub(super) async fn to_store(
    api: &Api,
    request: &ResourceRequest,
    permit: Option<&Permit>,
    object: Value,
) -> Result<Bytes, StatusError> {
    let stored = request.resource.stored.to_string();
    let desired = permit.map_or(stored.as_str(), |permit| permit.encoding());
    let mut objects = convert(&*api.converter, &request.resource, desired, vec![object]).await?;
    objects.pop().map(stored::encode).ok_or_else(|| StatusError::plain("the conversion returned no object"))
}

/// The result of a write.
pub(super) enum Outcome {
    /// It is stored, at this revision.
    Done(u64),
    /// A conflict: this is the current entry.
    Conflict(Option<Entry>),
}

impl From<Written> for Outcome {
    fn from(written: Written) -> Self {
        match written {
            Written::Done { revision } => Self::Done(revision),
            Written::Conflict { current } => Self::Conflict(current),
        }
    }
}

/// The gate's permit for a write, held until it is stored.
pub(super) async fn writing(api: &Api, request: &ResourceRequest) -> Result<Writing, StatusError> {
    match request.passage {
        Passage::Open => api.gate.write().ok_or_else(|| StatusError::service_unavailable(NOT_REGISTERED)),
        Passage::Exempt => Ok(api.gate.write_exempt().await),
    }
}

pub(super) async fn write(
    api: &Api,
    request: &ResourceRequest,
    key: String,
    expected: u64,
    value: Option<Bytes>,
) -> Result<Outcome, StatusError> {
    let value = value.map(|plain| api.encrypt(&request.resource, &key, plain)).transpose()?;
    let _writing = writing(api, request).await?;
    let written = api.store.write(Write { key, expected, value }).await;
    Ok(written.map_err(|error| refused(&error))?.into())
}

/// Stores a new object on condition that its namespace and definition still admit new ones: conversion may take long, and
/// other servers may know of a deletion earlier.
pub(super) async fn write_new(
    api: &Api,
    request: &ResourceRequest,
    name: &str,
    plain: Bytes,
    mut unchanged: Vec<Unchanged>,
) -> Result<Outcome, StatusError> {
    let key = request.resource.key(&request.target.namespace, name);
    let value = Some(api.encrypt(&request.resource, &key, plain)?);
    let write = Write { key, expected: 0, value };
    loop {
        // Checked each time: the gate may have closed.
        let _writing = writing(api, request).await?;
        let written = match unchanged.is_empty() {
            true => api.store.write(write.clone()).await.map(Some),
            false => api.store.write_while(write.clone(), unchanged).await,
        };
        match written.map_err(|error| refused(&error))? {
            Some(written) => return Ok(written.into()),
            None => unchanged = namespace_lifecycle::conditions_again(api, request, name).await?,
        }
    }
}
