//! The versions of a resource for field managers. What a webhook has to convert is converted between two computations.

use std::cell::RefCell;

use restow_apply::{Schema, Set, Unconverted, Versions};
use serde_json::{Value, json};

use super::reset::fields as reset_fields;
use crate::http::status::StatusError;
use crate::object::protobuf::schema::structure;
use crate::registry::conversion::{convert, to_built_in};
use crate::registry::resource::{Implementation, Resource};
use crate::verbs::api::Api;
use crate::verbs::request::ResourceRequest;

/// Why an object is not computed.
pub(in crate::verbs) enum Interrupted {
    /// The request is refused.
    Refused(StatusError),
    /// An object has to be converted first.
    Convert(Box<Wanted>),
}

impl From<StatusError> for Interrupted {
    fn from(error: StatusError) -> Self {
        Self::Refused(error)
    }
}

/// An object that a webhook has to convert, and the version.
#[derive(Debug)]
pub(in crate::verbs) struct Wanted {
    object: Value,
    api_version: String,
}

/// What webhooks have converted for a request.
#[derive(Debug, Default)]
pub(in crate::verbs) struct Conversions(Vec<(Wanted, Result<Value, String>)>);

impl Conversions {
    /// Converts an object with the webhook of its definition. A failure is kept as the result.
    pub(in crate::verbs) async fn add(&mut self, api: &Api, request: &ResourceRequest, wanted: Wanted) {
        let objects = vec![wanted.object.clone()];
        let converted = convert(&*api.converter, &request.resource, &wanted.api_version, objects).await;
        let no_object = || StatusError::plain("the conversion returned no object");
        let result = converted.and_then(|mut objects| objects.pop().ok_or_else(no_object));
        let result = result.map(|object| pruned(request, object, &wanted.api_version));
        self.0.push((wanted, result.map_err(|error| error.message().to_owned())));
    }

    fn find(&self, object: &Value, api_version: &str) -> Option<&Result<Value, String>> {
        let is_it = |wanted: &Wanted| wanted.api_version == api_version && wanted.object == *object;
        self.0.iter().find(|(wanted, _)| is_it(wanted)).map(|(_, result)| result)
    }
}

/// Whether objects can be converted to a version. Other versions of built-in resources are dropped with the next change.
pub(super) fn is_known(resource: &Resource, api_version: &str) -> bool {
    let Some(custom) = resource.custom() else { return true };
    custom.decodable().iter().any(|version| version.to_string() == api_version)
}

/// Without fields that the version does not have.
fn pruned(request: &ResourceRequest, mut object: Value, api_version: &str) -> Value {
    if let Some(custom) = request.resource.custom() {
        custom.prune(version_of(api_version), &mut object);
    }
    object
}

fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

/// The versions of the resource of a request.
pub(super) struct ResourceVersions<'a> {
    request: &'a ResourceRequest,
    conversions: &'a Conversions,
    wanted: RefCell<Option<Wanted>>,
}

impl<'a> ResourceVersions<'a> {
    pub(super) fn new(request: &'a ResourceRequest, conversions: &'a Conversions) -> Self {
        Self { request, conversions, wanted: RefCell::new(None) }
    }

    /// Whether a conversion is missing.
    pub(super) fn has_wanted(&self) -> bool {
        self.wanted.borrow().is_some()
    }

    /// The interruption for the missing conversion.
    pub(super) fn interrupted(&self) -> Interrupted {
        match self.wanted.take() {
            Some(wanted) => Interrupted::Convert(Box::new(wanted)),
            None => StatusError::plain("the conversion is not done yet").into(),
        }
    }

    /// Whether the definition has a version, served or not.
    fn is_decodable(&self, api_version: &str) -> bool {
        is_known(&self.request.resource, api_version)
    }
}

impl Versions for ResourceVersions<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        match &self.request.resource.implementation {
            Implementation::BuiltIn(own) => structure(api_version, own.kind).map(|found| &found.schema),
            Implementation::Custom(custom) => {
                let version = self.is_decodable(api_version).then(|| version_of(api_version))?;
                custom.apply_schema(version)
            }
        }
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Unconverted> {
        let custom = match &self.request.resource.implementation {
            Implementation::BuiltIn(own) => {
                if structure(api_version, own.kind).is_none() {
                    return Err(Unconverted::Missing);
                }
                let mut object = object.clone();
                to_built_in(&mut object, api_version);
                return Ok(object);
            }
            Implementation::Custom(custom) => custom,
        };
        if !self.is_decodable(api_version) {
            let message = format!("request to convert CR to an invalid group/version: {api_version}");
            return Err(Unconverted::Failed(message));
        }
        if custom.has_webhook() {
            return match self.conversions.find(object, api_version) {
                Some(Ok(converted)) => Ok(converted.clone()),
                Some(Err(message)) => Err(Unconverted::Failed(message.clone())),
                None => {
                    let wanted = Wanted { object: object.clone(), api_version: api_version.to_owned() };
                    self.wanted.replace(Some(wanted));
                    Err(Unconverted::Pending)
                }
            };
        }
        let mut object = object.clone();
        object["apiVersion"] = json!(api_version);
        Ok(pruned(self.request, object, api_version))
    }

    fn reset_fields(&self, api_version: &str) -> Option<&Set> {
        reset_fields(self.request, api_version)
    }
}
