//! A resource request, and its response.

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
use crate::http::status::StatusError;
use crate::object::meta::{Endpoint, Rules};
use crate::registry::resource::{Implementation, Resource};
use crate::verbs::api::Api;
use crate::verbs::view::View;
use crate::verbs::workers::LARGE;

/// The field manager of the server itself.
pub(crate) const OWN_AGENT: &str = "restow-apiserver";

#[derive(Clone, Debug)]
pub(crate) struct ResourceRequest {
    pub resource: Arc<Resource>,
    /// The object or objects that its path names.
    pub target: ResourcePath,
    /// The options in its query.
    pub options: Options,
    /// The negotiated form of the response.
    pub accepted: Accepted,
    /// How objects are shown in the response.
    pub view: View,
    /// The media type of its body.
    pub content_type: String,
    pub body: Bytes,
    /// The field manager.
    pub manager: String,
    /// The user who sent it.
    pub sender: Arc<User>,
    /// How it passed the gate.
    pub passage: Passage,
}

/// The response to a resource request.
pub(crate) struct VerbResponse {
    /// The status code.
    pub code: StatusCode,
    pub body: Body,
    /// Warnings to the client.
    pub warnings: Vec<String>,
    /// The name of a created object, which is not in the path.
    pub made: Option<String>,
}

impl VerbResponse {
    pub(super) fn ok(bytes: Bytes) -> Self {
        Self { code: StatusCode::OK, body: Body::from(bytes), warnings: Vec::new(), made: None }
    }
}

impl ResourceRequest {
    /// The key of the object.
    pub(crate) fn key(&self) -> String {
        self.resource.key(&self.target.namespace, &self.target.name)
    }

    /// The metadata rules of its resource.
    pub(crate) fn rules(&self) -> Rules {
        match &self.resource.implementation {
            Implementation::BuiltIn(built_in) => built_in.rules(),
            Implementation::Custom(_) => Rules::custom(
                self.resource.name.clone(),
                self.resource.group_kind(),
                self.resource.namespaced,
                self.resource.has(&self.target.version, "status"),
            ),
        }
    }

    /// Refuses objects that are nested too deep, and roles or bindings that escalate the permissions of the sender.
    pub(super) fn permit(
        &self,
        api: &Api,
        object: &Value,
        before: Option<&Value>,
    ) -> Result<(), StatusError> {
        limits::check_depth(object)?;
        let name = &self.resource.name;
        api.access.permit_write(&self.sender, (&name.group, &name.resource), object, before)
    }

    /// How many bytes the work of this request counts as. RBAC objects always count as large: their rules are compared with
    /// all rules of the writer.
    pub(super) fn effort(&self, bytes: usize) -> usize {
        if self.resource.name.group == rbac::GROUP { bytes.max(LARGE) } else { bytes }
    }

    /// Refuses an update that would create an object if the sender may not create it.
    pub(super) fn permit_create(&self, api: &Api) -> Result<(), StatusError> {
        let resource = ResourceAttributes {
            group: &self.target.group,
            resource: &self.target.resource,
            subresource: &self.target.subresource,
            namespace: &self.target.namespace,
            name: &self.target.name,
        };
        api.access.policy.current().permit(&self.sender, &Attributes::of_resource("create", resource))
    }

    /// The endpoint of the object: main or status.
    pub(super) fn endpoint(&self) -> Endpoint {
        if self.target.subresource == "status" { Endpoint::Status } else { Endpoint::Main }
    }

    pub(super) fn not_found(&self) -> StatusError {
        StatusError::not_found(&self.resource.name, &self.target.name)
    }
}
