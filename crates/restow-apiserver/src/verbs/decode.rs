//! Decodes a sent object into its resource: known fields only, with the right types.

use serde_json::Value;

use crate::http::options::FieldValidation;
use crate::http::status::StatusError;
use crate::http::status::golang::quote;
use crate::object::meta::shape;
use crate::object::schema::strict;
use crate::registry::resource::Implementation;
use crate::verbs::payload;
use crate::verbs::request::ResourceRequest;

/// A decoded object, and warnings about it.
pub(super) struct DecodedObject {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

/// Decodes an object in the version of the request.
pub(super) fn read(request: &ResourceRequest, sent: Value) -> Result<DecodedObject, StatusError> {
    let kind = &request.resource.kind;
    let version = &request.target.version;
    let (object, unknown) = match &request.resource.implementation {
        Implementation::BuiltIn(built_in) => {
            let mismatch = |error: serde_json::Error| unhandled(request, &error.to_string());
            let object = (built_in.typed.read)(sent.clone()).map_err(mismatch)?;
            let unknown = match request.options.field_validation {
                FieldValidation::Ignore => Vec::new(),
                FieldValidation::Warn | FieldValidation::Strict => payload::unknown(&sent, &object),
            };
            (object, unknown)
        }
        Implementation::Custom(custom) => {
            let mut object = sent;
            let mut unknown = shape::coerce(&mut object, kind, version, "")?;
            unknown.extend(custom.prune_and_default(version, &mut object));
            (object, unknown)
        }
    };
    let warnings = judge(request, unknown)?;
    Ok(DecodedObject { object, warnings })
}

/// An object in the version of the request that a configuration was merged into. Its fields are known.
pub(super) fn read_applied(request: &ResourceRequest, merged: Value) -> Result<DecodedObject, StatusError> {
    let Implementation::Custom(custom) = &request.resource.implementation else {
        return read(request, merged);
    };
    let (mut object, version) = (merged, &request.target.version);
    shape::coerce(&mut object, &request.resource.kind, version, "")?;
    custom.default_applied(version, &mut object);
    Ok(DecodedObject { object, warnings: Vec::new() })
}

/// Refuses, warns of or ignores unknown fields.
fn judge(request: &ResourceRequest, unknown: Vec<String>) -> Result<Vec<String>, StatusError> {
    let mut problems: Vec<String> =
        unknown.iter().map(|path| format!("unknown field {}", quote(path))).collect();
    problems.sort();
    // Duplicates are found in complete objects as they were sent; of a patch only the result is checked.
    if request.options.field_validation != FieldValidation::Ignore && payload::is_json(&request.content_type)
    {
        let twice = strict::duplicates(&request.body).into_iter();
        problems.splice(..0, twice.map(|path| format!("duplicate field {}", quote(&path))));
    }
    match request.options.field_validation {
        FieldValidation::Strict if !problems.is_empty() => {
            Err(unhandled(request, &format!("strict decoding error: {}", problems.join(", "))))
        }
        FieldValidation::Warn => Ok(problems),
        FieldValidation::Ignore | FieldValidation::Strict => Ok(Vec::new()),
    }
}

fn unhandled(request: &ResourceRequest, why: &str) -> StatusError {
    let kind = &request.resource.kind;
    let version = quote(&request.target.version);
    StatusError::bad_request(format!("{kind} in version {version} cannot be handled as a {kind}: {why}"))
}
