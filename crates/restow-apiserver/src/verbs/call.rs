//! A request for objects of a resource, and its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use restow_core::protocol::request::ResourcePath;
use restow_storageversion::gate::Passage;
use serde_json::Value;

use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::auth::rbac;
use crate::auth::user::User;
use crate::http::body::Body;
use crate::http::limits;
use crate::http::negotiation::Accepted;
use crate::http::options::Options;
use crate::http::status::Failure;
use crate::object::meta::{Endpoint, Rules};
use crate::registry::resource::{Nature, Resource};
use crate::verbs::api::Api;
use crate::verbs::view::View;
use crate::verbs::workers::LARGE;

/// This server itself, where it writes.
pub(crate) const OWN_AGENT: &str = "restow-apiserver";

/// A request for objects of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The resource.
    pub resource: Arc<Resource>,
    /// The object or objects that its path names.
    pub target: ResourcePath,
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
pub(crate) struct Answer {
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
    pub(super) fn ok(bytes: Bytes) -> Self {
        Self { code: StatusCode::OK, body: Body::from(bytes), warnings: Vec::new(), made: None }
    }
}

impl Call {
    /// The key of the object.
    pub(crate) fn key(&self) -> String {
        self.resource.key(&self.target.namespace, &self.target.name)
    }

    /// The rules of its metadata.
    pub(crate) fn rules(&self) -> Rules {
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
    pub(super) fn permit(&self, api: &Api, object: &Value, before: Option<&Value>) -> Result<(), Failure> {
        limits::check_depth(object)?;
        let name = &self.resource.name;
        api.access.permit_write(&self.sender, (&name.group, &name.resource), object, before)
    }

    /// How many bytes the work of this call counts as. Rules are compared with all that their writer has, however few
    /// bytes they have.
    pub(super) fn effort(&self, bytes: usize) -> usize {
        if self.resource.name.group == rbac::GROUP { bytes.max(LARGE) } else { bytes }
    }

    /// Whether the sender of an update may create what is not there.
    pub(super) fn permit_create(&self, api: &Api) -> Result<(), Failure> {
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
    pub(super) fn endpoint(&self) -> Endpoint {
        if self.target.subresource == "status" { Endpoint::Status } else { Endpoint::Main }
    }

    pub(super) fn not_found(&self) -> Failure {
        Failure::not_found(&self.resource.name, &self.target.name)
    }
}
