//! An object as it was sent becomes one of its resource: known fields only, of their types.

use serde_json::Value;

use crate::http::options::FieldValidation;
use crate::http::status::Failure;
use crate::http::status::golang::quote;
use crate::object::meta::shape;
use crate::object::schema::strict;
use crate::registry::resource::Nature;
use crate::verbs::call::Call;
use crate::verbs::payload;

/// An object of its resource, and what to warn of.
pub(super) struct Read {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

/// Reads an object in the version of a call.
pub(super) fn read(call: &Call, sent: Value) -> Result<Read, Failure> {
    let kind = &call.resource.kind;
    let version = &call.target.version;
    let (object, unknown) = match &call.resource.nature {
        Nature::BuiltIn(built_in) => {
            let misfit = |error: serde_json::Error| unhandled(call, &error.to_string());
            let object = (built_in.typed.read)(sent.clone()).map_err(misfit)?;
            let unknown = match call.options.field_validation {
                FieldValidation::Ignore => Vec::new(),
                FieldValidation::Warn | FieldValidation::Strict => payload::unknown(&sent, &object),
            };
            (object, unknown)
        }
        Nature::Custom(custom) => {
            let mut object = sent;
            let mut unknown = shape::coerce(&mut object, kind, version, "")?;
            unknown.extend(custom.adopt(version, &mut object));
            (object, unknown)
        }
    };
    let warnings = judge(call, unknown)?;
    Ok(Read { object, warnings })
}

/// What becomes of unknown fields: they are refused, warned of or passed over.
fn judge(call: &Call, unknown: Vec<String>) -> Result<Vec<String>, Failure> {
    let mut told: Vec<String> = unknown.iter().map(|path| format!("unknown field {}", quote(path))).collect();
    told.sort();
    // Whole objects are looked at as they were sent; of a patch only what it makes is.
    if call.options.field_validation != FieldValidation::Ignore && payload::is_json(&call.content_type) {
        let twice = strict::duplicates(&call.body).into_iter();
        told.splice(..0, twice.map(|path| format!("duplicate field {}", quote(&path))));
    }
    match call.options.field_validation {
        FieldValidation::Strict if !told.is_empty() => {
            Err(unhandled(call, &format!("strict decoding error: {}", told.join(", "))))
        }
        FieldValidation::Warn => Ok(told),
        FieldValidation::Ignore | FieldValidation::Strict => Ok(Vec::new()),
    }
}

fn unhandled(call: &Call, why: &str) -> Failure {
    let kind = &call.resource.kind;
    let version = quote(&call.target.version);
    Failure::bad_request(format!("{kind} in version {version} cannot be handled as a {kind}: {why}"))
}
