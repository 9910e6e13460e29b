//! What every converter can do, and what it is told about the object.

use serde_json::Value;

use crate::Error;

/// Converts objects of one kind between its versions, in any way it likes.
pub trait Convertible: Send + Sync {
    /// The object in the wanted version, such as `v1`.
    ///
    /// The object is a whole one, with apiVersion, kind and metadata. Only labels and annotations of the metadata may
    /// differ in the result.
    ///
    /// # Errors
    /// When the object cannot be converted; the API server's client reads the reason.
    fn convert(&self, object: Value, version: &str) -> Result<Value, Error>;
}

/// Objects that are nested deeper than this are refused, so that what is kept of them can always be read again.
pub(crate) const MAX_DEPTH: usize = 100;

/// The version of an object, after a check that it is an object of this kind.
pub(crate) fn version_of(object: &Value, group: &str, kind: &str) -> Result<String, Error> {
    let text = |field| object.get(field).and_then(Value::as_str);
    let api_version = text("apiVersion").ok_or(Error::NotAnObject("it has no apiVersion"))?;
    let found_kind = text("kind").ok_or(Error::NotAnObject("it has no kind"))?;
    let (found_group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if (found_group, found_kind) != (group, kind) {
        let name = |group: &str, kind: &str| {
            if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
        };
        return Err(Error::WrongKind { expected: name(group, kind), found: name(found_group, found_kind) });
    }
    if !object.get("metadata").is_some_and(Value::is_object) {
        return Err(Error::NotAnObject("it has no metadata"));
    }
    if is_deeper(object, MAX_DEPTH) {
        return Err(Error::NotAnObject("it is nested more than 100 levels deep"));
    }
    Ok(version.to_owned())
}

fn is_deeper(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth == 0 || items.iter().any(|item| is_deeper(item, depth - 1)),
        Value::Object(fields) => depth == 0 || fields.values().any(|field| is_deeper(field, depth - 1)),
        _ => false,
    }
}

/// Sets the apiVersion.
pub(crate) fn set_version(object: &mut Value, group: &str, version: &str) {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    object["apiVersion"] = Value::String(api_version);
}
