//! Writes to the store, each on condition of what was read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use restow_clock::Instant;
use restow_storageversion::custom::Write as Permit;
use restow_storageversion::gate::{Passage, Writing};
use restow_store::{Entry, Unchanged, Write, Written};
use serde_json::Value;

use crate::http::negotiation::Form;
use crate::http::status::Failure;
use crate::object::stored::{self, Extent, decode, refused};
use crate::registry::conversion::convert;
use crate::verbs::api::{Api, NOT_REGISTERED};
use crate::verbs::call::Call;
use crate::verbs::namespace_lifecycle;
use crate::verbs::view::View;

/// How long a write waits for a definition whose version is being changed.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks.
const EVERY: Duration = Duration::from_millis(5);

/// The right to write objects of a call's resource; it is to be held until they are stored.
///
/// With it the call is of the definition as it is now: that was set before writes were let in again.
pub(crate) async fn permit(api: &Api, call: &mut Call) -> Result<Option<Permit>, Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let target = &call.target;
        let Some(resource) = api.registry.find(&target.group, &target.version, &target.resource) else {
            return Err(Failure::unknown_path());
        };
        let Some(custom) = resource.custom() else { return Ok(None) };
        if let Some(write) = custom.writer().write() {
            // It may have been changed while the permit was taken.
            let now = api.registry.find(&target.group, &target.version, &target.resource);
            let resource = now.ok_or_else(Failure::unknown_path)?;
            if !Arc::ptr_eq(&resource, &call.resource) {
                let include = call.options.include_object;
                call.view = View::new(&resource, &target.version, call.accepted, include);
                call.resource = resource;
            }
            return Ok(Some(write));
        }
        if Instant::now() >= until {
            return Err(Failure::service_unavailable(NOT_REGISTERED));
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// An object as it is stored, and in the version of a call.
pub(super) struct Current {
    /// What is stored, opened.
    pub(super) entry: Entry,
    /// Whether it would be sealed in another way now.
    pub(super) stale: bool,
    pub(super) object: Value,
}

pub(super) async fn current(api: &Api, call: &Call, mut entry: Entry) -> Result<Current, Failure> {
    let stale = api.open(&call.resource, &mut entry)?;
    let whole = View { form: Form::Whole, ..call.view.clone() };
    let object = whole.object(api, decode(&entry, Extent::Whole)?).await?;
    Ok(Current { entry, stale, object })
}

/// The bytes to store for an object in the version of a call.
pub(super) async fn to_store(
    api: &Api,
    call: &Call,
    permit: Option<&Permit>,
    object: Value,
) -> Result<Bytes, Failure> {
    let stored = call.resource.stored.to_string();
    let desired = permit.map_or(stored.as_str(), |permit| permit.encoding());
    let mut objects = convert(&*api.converter, &call.resource, desired, vec![object]).await?;
    objects.pop().map(stored::encode).ok_or_else(|| Failure::plain("an object was lost in conversion"))
}

/// What came of a write.
pub(super) enum Outcome {
    /// It is stored, as this revision.
    Done(u64),
    /// Another was faster, and this is there now.
    Faster(Option<Entry>),
}

impl From<Written> for Outcome {
    fn from(written: Written) -> Self {
        match written {
            Written::Done { revision } => Self::Done(revision),
            Written::Conflict { current } => Self::Faster(current),
        }
    }
}

/// The right to store something now, to be held until it is stored.
pub(super) async fn writing(api: &Api, call: &Call) -> Result<Writing, Failure> {
    match call.passage {
        Passage::Open => api.gate.write().ok_or_else(|| Failure::service_unavailable(NOT_REGISTERED)),
        Passage::Exempt => Ok(api.gate.write_exempt().await),
    }
}

pub(super) async fn write(
    api: &Api,
    call: &Call,
    key: String,
    expected: u64,
    value: Option<Bytes>,
) -> Result<Outcome, Failure> {
    let value = value.map(|plain| api.seal(&call.resource, &key, plain)).transpose()?;
    let _writing = writing(api, call).await?;
    let written = api.store.write(Write { key, expected, value }).await;
    Ok(written.map_err(|error| refused(&error))?.into())
}

/// Stores a new object on condition that its namespace and its definition still take new ones: conversion may have
/// taken long, and other servers may be ahead of this one.
pub(super) async fn write_new(
    api: &Api,
    call: &Call,
    name: &str,
    plain: Bytes,
    mut unchanged: Vec<Unchanged>,
) -> Result<Outcome, Failure> {
    let key = call.resource.key(&call.target.namespace, name);
    let value = Some(api.seal(&call.resource, &key, plain)?);
    let write = Write { key, expected: 0, value };
    loop {
        // Each time: the gate may have closed since.
        let _writing = writing(api, call).await?;
        let written = match unchanged.is_empty() {
            true => api.store.write(write.clone()).await.map(Some),
            false => api.store.write_while(write.clone(), unchanged).await,
        };
        match written.map_err(|error| refused(&error))? {
            Some(written) => return Ok(written.into()),
            None => unchanged = namespace_lifecycle::conditions_again(api, call, name).await?,
        }
    }
}
