//! Server-side apply: a configuration that is merged by the owners of fields.

use serde_json::Value;

use crate::http::options::FieldValidation;
use crate::http::status::{Cause, GroupKind, StatusError};
use crate::object::meta::{name, text, validate};
use crate::verbs::decode::{self, DecodedObject};
use crate::verbs::field_managers::{self, Conversions, Interrupted};
use crate::verbs::payload;
use crate::verbs::request::ResourceRequest;

/// An applied configuration.
pub(super) struct Applied {
    config: Value,
    /// What is wrong with it though it can be read.
    problems: Vec<String>,
}

/// Refuses options that do not fit the kind of patch.
pub(super) fn check_options(request: &ResourceRequest, is_apply: bool) -> Result<(), StatusError> {
    let manager = &request.options.field_manager;
    let mut causes = Vec::new();
    if is_apply && manager.is_empty() {
        causes.push(Cause::required("fieldManager", "is required for apply patch"));
    }
    if !is_apply && request.options.force.is_some() {
        causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    causes.extend(validate::manager(manager, "fieldManager"));
    if causes.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(&GroupKind::new("meta.k8s.io", "PatchOptions"), "", causes))
}

/// The configuration in the body, which must be of the type of the path.
pub(super) fn read(request: &ResourceRequest) -> Result<Applied, StatusError> {
    let (config, problems) = payload::configuration(&request.body)?;
    let part = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (part("apiVersion"), part("kind"));
    if api_version != request.view.api_version || kind != request.resource.kind {
        // The core group has no name.
        let slash = if api_version.contains('/') { "" } else { "/" };
        return Err(StatusError::bad_request(format!(
            "invalid object type: {slash}{api_version}, Kind={kind}"
        )));
    }
    Ok(Applied { config, problems })
}

/// The object with the configuration merged into it, and warnings.
pub(super) fn merged(
    request: &ResourceRequest,
    live: Option<&Value>,
    applied: &Applied,
    conversions: &Conversions,
) -> Result<DecodedObject, Interrupted> {
    let merged = field_managers::apply(request, live, &applied.config, conversions)?;
    let mut read = decode::read_applied(request, merged)?;
    if applied.problems.is_empty() {
        return Ok(read);
    }
    match request.options.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => read.warnings.extend(applied.problems.iter().cloned()),
        FieldValidation::Strict => {
            let message = format!("error strict decoding YAML: {}", applied.problems.join(", "));
            return Err(StatusError::bad_request(message).into());
        }
    }
    Ok(read)
}

/// Refuses to create an object for a configuration that is for one with a certain uid.
pub(super) fn check_new_uid(request: &ResourceRequest, object: &Value) -> Result<(), StatusError> {
    let uid = text(object, "uid");
    if uid.is_empty() {
        return Ok(());
    }
    let why =
        format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    Err(StatusError::conflict(&request.resource.name, name(object), &why))
}
