//! Stored objects: JSON without the resourceVersion, which is the revision of the entry.

use bytes::Bytes;
use restow_store::{Entry, StoreError};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::http::json;
use crate::http::status::StatusError;

/// How much of an object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeScope {
    /// All.
    Whole,
    /// Its type and metadata; the rest is only checked to be JSON.
    Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataOnly {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Map<String, Value>,
}

/// Reads an entry, with its resourceVersion.
pub(crate) fn decode(entry: &Entry, extent: DecodeScope) -> Result<Value, StatusError> {
    let read = match extent {
        DecodeScope::Whole => serde_json::from_slice::<Map<String, Value>>(&entry.value),
        // A list would be read as the fields in order.
        DecodeScope::Metadata if entry.value.trim_ascii_start().starts_with(b"[") => {
            Err(serde::de::Error::custom("it is a list"))
        }
        DecodeScope::Metadata => serde_json::from_slice::<MetadataOnly>(&entry.value).map(|light| {
            Map::from_iter([
                ("apiVersion".to_owned(), Value::String(light.api_version)),
                ("kind".to_owned(), Value::String(light.kind)),
                ("metadata".to_owned(), Value::Object(light.metadata)),
            ])
        }),
    };
    let mut object = Value::Object(read.map_err(|error| unreadable(&entry.key, &error))?);
    set_version(&mut object, entry.mod_revision);
    Ok(object)
}

/// The bytes to store.
pub(crate) fn encode(mut object: Value) -> Bytes {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("selfLink");
    }
    json::encode(&object)
}

/// Gives an object the resourceVersion of a revision.
pub(crate) fn set_version(object: &mut Value, revision: u64) {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    object["metadata"]["resourceVersion"] = Value::String(revision.to_string());
}

fn unreadable(key: &str, error: &serde_json::Error) -> StatusError {
    StatusError::plain(format!("the object stored under {key} cannot be decoded: {error}"))
}

/// The Status of an error of the store.
pub(crate) fn refused(error: &StoreError) -> StatusError {
    match error {
        StoreError::Compacted { asked, oldest } => StatusError::watch_expired(*asked, *oldest),
        StoreError::Future { asked, newest } => StatusError::version_too_large(*asked, *newest),
        StoreError::Missed(_) => StatusError::missed(&error.to_string()),
        StoreError::Unavailable(_) => StatusError::service_unavailable(error.to_string()),
        StoreError::Damaged(_) => StatusError::plain(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(value: &'static str) -> Entry {
        let value = Bytes::from_static(value.as_bytes());
        Entry { key: "/registry/a".to_owned(), value, create_revision: 3, mod_revision: 7 }
    }

    #[test]
    fn the_resource_version_is_the_revision_of_the_store() {
        let entry =
            entry(r#"{"apiVersion":"v1","data":{"a":"b"},"kind":"ConfigMap","metadata":{"name":"x"}}"#);
        let whole = decode(&entry, DecodeScope::Whole).unwrap_or_default();
        assert_eq!(whole["metadata"], json!({"name": "x", "resourceVersion": "7"}));
        assert_eq!(encode(whole), format!("{}\n", String::from_utf8_lossy(&entry.value)));
        let light = decode(&entry, DecodeScope::Metadata).unwrap_or_default();
        assert_eq!(light["kind"], "ConfigMap");
        assert_eq!(light.get("data"), None);
    }

    #[test]
    fn malformed_json_fails_in_every_decode_scope() {
        for text in ["", "{", r#"{"metadata":{},"data":{"#, "[]", "null", r#"{"metadata":{}} x"#] {
            for extent in [DecodeScope::Whole, DecodeScope::Metadata] {
                let failure = decode(&entry(text), extent).err().map(|failure| failure.code());
                assert_eq!(failure, Some(500), "{text}");
            }
        }
    }
}
