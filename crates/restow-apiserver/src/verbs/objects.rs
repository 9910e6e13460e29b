//! Single objects: get, create, update, patch and delete, each as one write on condition of what was read.

mod admission;
mod binding;
mod change;
mod create;
mod fixed;
mod incoming;
mod managed;
mod registered;
mod remove;
mod role;
mod special;

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use restow_storageversion::custom::Write as Permit;
use restow_storageversion::gate::{Passage, Writing};
use restow_store::{Entry, Unchanged, Write, Written};
use serde_json::Value;

use crate::auth::authentication::User;
use crate::auth::rbac::{self, Attributes, ResourceAttributes};
use crate::http::body::Body;
use crate::http::limits;
use crate::http::negotiation::Accepted;
use crate::http::options::Options;
use crate::http::request_info::Target;
use crate::http::status::Failure;
use crate::object::meta::{Endpoint, Rules};
use crate::object::stored::{self, Extent, decode, refused};
use crate::registry::conversion::convert;
use crate::registry::served::{Nature, Resource};
use crate::verbs::api::{Api, NOT_REGISTERED};
use crate::verbs::view::View;
use crate::verbs::workers::LARGE;

pub use change::{patch, update};
pub use create::create;
pub(crate) use create::uid;
pub(crate) use remove::delete_stored;
pub use remove::{delete, delete_collection};

/// A request for objects of a resource.
#[derive(Clone, Debug)]
pub struct Call {
    /// The resource.
    pub resource: Arc<Resource>,
    /// What its path names.
    pub target: Target,
    /// What its query asks for.
    pub options: Options,
    /// How the answer is written.
    pub accepted: Accepted,
    /// How objects look in it.
    pub view: View,
    /// What its body is.
    pub content_type: String,
    /// Its body.
    pub body: Bytes,
    /// Who writes, as managedFields tell it.
    pub manager: String,
    /// Who sent it.
    pub sender: Arc<User>,
    /// How it has passed the gate.
    pub passage: Passage,
}

/// What is answered.
pub struct Answer {
    /// The status code.
    pub code: StatusCode,
    /// The body.
    pub body: Body,
    /// What the client should know.
    pub warnings: Vec<String>,
    /// The name of what was made, which the path does not say.
    pub made: Option<String>,
}

impl Answer {
    fn ok(bytes: Bytes) -> Self {
        Self { code: StatusCode::OK, body: Body::from(bytes), warnings: Vec::new(), made: None }
    }
}

impl Call {
    /// The key of the object.
    pub fn key(&self) -> String {
        self.resource.key(&self.target.namespace, &self.target.name)
    }

    /// The rules of its metadata.
    pub fn rules(&self) -> Rules {
        match &self.resource.nature {
            Nature::BuiltIn(built_in) => built_in.rules(),
            Nature::Custom(_) => Rules::custom(
                self.resource.name.clone(),
                self.resource.group_kind(),
                self.resource.namespaced,
                self.resource.has(&self.target.version, "status"),
            ),
        }
    }

    /// Refuses what nobody may store, or the sender may not: what is nested too deep, and rules that are not theirs.
    fn permit(&self, api: &Api, object: &Value, before: Option<&Value>) -> Result<(), Failure> {
        limits::check_depth(object)?;
        let name = &self.resource.name;
        api.access.permit_write(&self.sender, (&name.group, &name.resource), object, before)
    }

    /// How many bytes the work of this call counts as. Rules are compared with all that their writer has, however few
    /// bytes they have.
    fn effort(&self, bytes: usize) -> usize {
        if self.resource.name.group == rbac::GROUP { bytes.max(LARGE) } else { bytes }
    }

    /// Whether the sender of an update may create what is not there.
    fn permit_create(&self, api: &Api) -> Result<(), Failure> {
        let resource = ResourceAttributes {
            group: &self.target.group,
            resource: &self.target.resource,
            subresource: &self.target.subresource,
            namespace: &self.target.namespace,
            name: &self.target.name,
        };
        api.access.policy.current().permit(&self.sender, &Attributes::of_resource("create", resource))
    }

    /// Which endpoint of the object it is for.
    fn endpoint(&self) -> Endpoint {
        if self.target.subresource == "status" { Endpoint::Status } else { Endpoint::Main }
    }

    fn not_found(&self) -> Failure {
        Failure::not_found(&self.resource.name, &self.target.name)
    }
}

/// Answers a get.
pub async fn get(api: &Api, call: &Call) -> Result<Answer, Failure> {
    let entry = api.entry(&call.key()).await?.ok_or_else(|| call.not_found())?;
    let stored = api.decode(&call.resource, entry, call.view.extent(&Default::default()))?;
    let object = call.view.object(api, stored).await?;
    Ok(Answer::ok(call.view.answer(object)))
}

/// An object as it is stored, and in the version of a call.
struct Current {
    /// What is stored, opened.
    entry: Entry,
    /// Whether it would be sealed in another way now.
    stale: bool,
    object: Value,
}

async fn current(api: &Api, call: &Call, mut entry: Entry) -> Result<Current, Failure> {
    let stale = api.open(&call.resource, &mut entry)?;
    let whole = View { form: crate::http::negotiation::Form::Whole, ..call.view.clone() };
    let object = whole.object(api, decode(&entry, Extent::Whole)?).await?;
    Ok(Current { entry, stale, object })
}

/// The bytes to store for an object in the version of a call.
async fn to_store(api: &Api, call: &Call, permit: Option<&Permit>, object: Value) -> Result<Bytes, Failure> {
    let stored = call.resource.stored.to_string();
    let desired = permit.map_or(stored.as_str(), |permit| permit.encoding());
    let mut objects = convert(&*api.converter, &call.resource, desired, vec![object]).await?;
    objects.pop().map(stored::encode).ok_or_else(|| Failure::plain("an object was lost in conversion"))
}

/// What came of a write.
enum Outcome {
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
async fn writing(api: &Api, call: &Call) -> Result<Writing, Failure> {
    match call.passage {
        Passage::Open => api.gate.write().ok_or_else(|| Failure::service_unavailable(NOT_REGISTERED)),
        Passage::Exempt => Ok(api.gate.write_exempt().await),
    }
}

async fn write(
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
async fn write_new(
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
            None => unchanged = admission::conditions_again(api, call, name).await?,
        }
    }
}
