//! What every converter can do, and what it is told about the object.

use serde_json::Value;

use crate::Error;
use crate::kept::is_deeper;

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
        return Err(Error::WrongKind {
            expected: kind_name(group, kind),
            found: kind_name(found_group, found_kind),
        });
    }
    let Some(Value::Object(metadata)) = object.get("metadata") else {
        return Err(Error::NotAnObject("it has no metadata"));
    };
    for name in ["labels", "annotations"] {
        if metadata.get(name).is_some_and(|value| !value.is_object() && !value.is_null()) {
            return Err(Error::NotAnObject("its labels or annotations are not a map"));
        }
    }
    if is_deeper(object, MAX_DEPTH) {
        return Err(Error::NotAnObject("it is nested more than 100 levels deep"));
    }
    Ok(version.to_owned())
}

/// A kind and its group, as in Widget.example.com.
pub(crate) fn kind_name(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

/// Sets the apiVersion.
pub(crate) fn set_version(object: &mut Value, group: &str, version: &str) {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    object["apiVersion"] = Value::String(api_version);
}
