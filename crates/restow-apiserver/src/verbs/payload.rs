//! The body of a request: an object in JSON, YAML or protobuf, whose type must fit the path.

use serde_json::{Map, Value, json};
use serde_saphyr::DuplicateKeyPolicy;

use crate::http::status::golang::quote;
use crate::http::status::{Cause, GroupKind, StatusError};
use crate::object::path::{Path, Paths};
use crate::object::protobuf;
use crate::object::schema::strict;
use crate::registry::resource::Resource;

/// The media types of request bodies.
pub(crate) const ACCEPTED: &[&str] = &["application/json", "application/yaml", protobuf::MEDIA];

/// The bare media type of a `Content-Type`, without its parameters.
pub(crate) fn media(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Parses a body.
pub(crate) fn parse(content_type: &str, bytes: &[u8]) -> Result<Value, StatusError> {
    match media(content_type) {
        _ if is_json(content_type) => json(bytes),
        "application/yaml" => yaml(bytes),
        protobuf::MEDIA => protobuf::decode(bytes),
        _ => Err(StatusError::unsupported_media_type(ACCEPTED)),
    }
}

/// Whether a body is JSON, which is the default.
pub(crate) fn is_json(content_type: &str) -> bool {
    matches!(media(content_type), "" | "application/json" | "*/*")
}

/// Parses JSON.
pub(crate) fn json(bytes: &[u8]) -> Result<Value, StatusError> {
    serde_json::from_slice(bytes).map_err(|error| unparsed("json parse error", &error))
}

/// An applied configuration, and what is wrong with it though it can be read: fields that are there twice.
///
/// It is YAML, but most clients send JSON, which is quicker to read.
pub(crate) fn configuration(bytes: &[u8]) -> Result<(Value, Vec<String>), StatusError> {
    let unread =
        |error: &dyn std::fmt::Display| StatusError::bad_request(format!("error decoding YAML: {error}"));
    let (config, twice) = match serde_json::from_slice(bytes) {
        Ok(config) => {
            let twice = strict::duplicates(bytes);
            (
                config,
                twice.into_iter().map(|path| format!("key {} already set in map", quote(&path))).collect(),
            )
        }
        Err(_) => match serde_saphyr::from_slice(bytes) {
            Ok(config) => (config, Vec::new()),
            Err(error) => {
                let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
                let config =
                    serde_saphyr::from_slice_with_options(bytes, options).map_err(|error| unread(&error))?;
                (config, vec![error.to_string()])
            }
        },
    };
    match config {
        Value::Object(_) => Ok((config, twice)),
        Value::Null => Ok((json!({}), twice)),
        _ => Err(unread(&"it is not an object")),
    }
}

fn yaml(bytes: &[u8]) -> Result<Value, StatusError> {
    serde_saphyr::from_slice(bytes).map_err(|error| unparsed("yaml parse error", &error))
}

fn unparsed(what: &str, error: &dyn std::fmt::Display) -> StatusError {
    StatusError::bad_request(format!("couldn't get version/kind; {what}: {error}"))
}

/// The sent object, with the type of the path. Built-in objects may omit kind and apiVersion.
pub(crate) fn object(resource: &Resource, api_version: &str, sent: Value) -> Result<Value, StatusError> {
    let Value::Object(mut fields) = sent else {
        return Err(StatusError::bad_request("the object provided is unrecognized: it is not a JSON object"));
    };
    let built_in = resource.custom().is_none();
    for (field, title, expected) in
        [("kind", "Kind", resource.kind.as_str()), ("apiVersion", "apiVersion", api_version)]
    {
        let given = fields.get(field).and_then(Value::as_str).unwrap_or_default();
        if given.is_empty() && !built_in {
            let shown = Value::Object(std::mem::take(&mut fields)).to_string();
            return Err(StatusError::bad_request(format!(
                "Object '{title}' is missing in {}",
                quote(&shown)
            )));
        }
        if !given.is_empty() && given != expected {
            return Err(other_type(&fields, resource, api_version));
        }
        fields.insert(field.to_owned(), json!(expected));
    }
    Ok(Value::Object(fields))
}

fn other_type(fields: &Map<String, Value>, resource: &Resource, api_version: &str) -> StatusError {
    let kind = &resource.kind;
    let text = |field| fields.get(field).and_then(Value::as_str).unwrap_or_default();
    let (given_version, given_kind) = (text("apiVersion"), text("kind"));
    if !given_version.is_empty() && given_version != api_version {
        return StatusError::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({api_version})"
        ));
    }
    if resource.custom().is_some() {
        let cause = Cause::invalid_text("kind", given_kind, &format!("must be {kind}"));
        let name = fields.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
        return StatusError::invalid(&GroupKind::new(&resource.name.group, given_kind), name, vec![cause]);
    }
    StatusError::bad_request(format!(
        "{given_kind} in version {} cannot be handled as a {kind}: it is of another kind",
        quote(api_version.rsplit('/').next().unwrap_or_default())
    ))
}

/// The paths of fields that were sent and not kept. Null counts as not sent.
pub(crate) fn unknown(sent: &Value, kept: &Value) -> Vec<String> {
    let mut paths = Paths::default();
    compare(sent, kept, &Path::default(), &mut paths);
    paths.into_vec()
}

fn compare(sent: &Value, kept: &Value, path: &Path<'_>, paths: &mut Paths) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (key, value) in sent.iter().filter(|(_, value)| !value.is_null()) {
                let path = path.field(key);
                match kept.get(key) {
                    Some(kept) => compare(value, kept, &path, paths),
                    None => paths.push(&path),
                }
            }
        }
        (Value::Array(sent), Value::Array(kept)) => {
            for (at, (sent, kept)) in sent.iter().zip(kept).enumerate() {
                compare(sent, kept, &path.item(at), paths);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::served::Registry;

    #[test]
    fn the_kind_and_version_of_a_body_must_fit_the_path() {
        let registry = Registry::default();
        let Some(config_maps) = registry.built_in("", "configmaps") else { panic!("not served") };
        for (sent, expected) in [
            (json!({"apiVersion": "v1", "kind": "ConfigMap"}), None),
            (json!({"metadata": {"name": "x"}}), None),
            (json!({"apiVersion": "v2", "kind": "ConfigMap"}), Some(400)),
            (json!({"apiVersion": "v1", "kind": "Secret"}), Some(400)),
            (json!([]), Some(400)),
        ] {
            let code = object(&config_maps, "v1", sent.clone()).err().map(|failure| failure.code());
            assert_eq!(code, expected, "{sent}");
        }
    }

    #[test]
    fn supported_media_types_are_parsed() {
        for (content_type, bytes, expected) in [
            ("", r#"{"a":1}"#, Ok(json!({"a": 1}))),
            ("application/json; charset=utf-8", r#"{"a":1}"#, Ok(json!({"a": 1}))),
            ("application/yaml", "a: 1\nb: [x]\n", Ok(json!({"a": 1, "b": ["x"]}))),
            ("application/json", "{", Err(400)),
            ("application/apply-patch+yaml", "a: 1", Err(415)),
        ] {
            let found = parse(content_type, bytes.as_bytes()).map_err(|failure| failure.code());
            assert_eq!(found, expected, "{content_type}");
        }
    }

    #[test]
    fn unknown_fields_are_listed() {
        let sent = json!({"a": {"b": 1, "c": 2, "n": null}, "l": [{"x": 1}, {"y": 2}]});
        let kept = json!({"a": {"b": 1}, "l": [{"x": 1}, {}]});
        assert_eq!(unknown(&sent, &kept), ["a.c", "l[1].y"]);
    }
}
