//! ConversionReview requests, and checks of their responses.

use serde_json::{Map, Value, json};

use crate::http::status::{Cause, StatusError, golang};
use crate::object::meta::validate::{annotations, labels};
use crate::object::meta::{name, text};

/// The supported versions of ConversionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1beta1,
}

impl ReviewVersion {
    /// The first supported version of a webhook.
    pub(super) fn first_of(versions: &[String]) -> Option<Self> {
        versions.iter().find_map(|version| match version.as_str() {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1beta1),
            _ => None,
        })
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "apiextensions.k8s.io/v1",
            Self::V1beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

/// Why a conversion failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WebhookError {
    /// The call failed.
    #[error("failed: {0}")]
    Call(String),
    /// The response has other objects than requested.
    #[error("returned {0}")]
    Response(String),
}

impl WebhookError {
    pub(super) fn call(why: impl Into<String>) -> Self {
        Self::Call(why.into())
    }
}

/// A ConversionReview.
pub(super) struct Review {
    version: ReviewVersion,
    uid: String,
    desired: String,
    objects: Vec<Value>,
}

impl Review {
    pub(super) fn new(version: ReviewVersion, uid: &str, desired: &str, objects: Vec<Value>) -> Self {
        Self { version, uid: uid.to_owned(), desired: desired.to_owned(), objects }
    }

    /// The request body.
    pub(super) fn request(&self) -> Value {
        json!({
            "apiVersion": self.version.api_version(), "kind": "ConversionReview",
            "request": { "uid": self.uid, "desiredAPIVersion": self.desired, "objects": self.objects },
        })
    }

    /// The Status of a failed conversion.
    pub(super) fn failure(&self, error: WebhookError) -> StatusError {
        let first = self.objects.first().unwrap_or(&Value::Null);
        let of = |key: &str| first[key].as_str().unwrap_or_default();
        StatusError::plain(format!(
            "conversion webhook for {}, Kind={} {error}",
            of("apiVersion"),
            of("kind")
        ))
    }

    /// The converted objects. Their metadata is restored, except for labels and annotations.
    pub(super) fn converted(&self, mut answer: Value) -> Result<Vec<Value>, WebhookError> {
        self.check(&answer).map_err(WebhookError::Call)?;
        let Value::Array(objects) = answer["response"]["convertedObjects"].take() else {
            return Err(self.miscounted(0));
        };
        if objects.len() != self.objects.len() {
            return Err(self.miscounted(objects.len()));
        }
        let each = self.objects.iter().zip(objects).enumerate();
        each.map(|(index, (original, converted))| self.one(index, original, converted)).collect()
    }

    fn miscounted(&self, count: usize) -> WebhookError {
        WebhookError::Response(format!("{count} objects, expected {}", self.objects.len()))
    }

    /// Refuses a response that does not answer this request, or reports a failure.
    fn check(&self, answer: &Value) -> Result<(), String> {
        let is_v1 = self.version == ReviewVersion::V1;
        let expected = self.version.api_version();
        if is_v1 && (answer["apiVersion"] != expected || answer["kind"] != "ConversionReview") {
            let of = |key: &str| answer[key].as_str().unwrap_or_default();
            return Err(format!(
                "expected webhook response of {expected}, Kind=ConversionReview, got {}, Kind={}",
                of("apiVersion"),
                of("kind")
            ));
        }
        let response = &answer["response"];
        if !response.is_object() {
            return Err("no response provided".to_owned());
        }
        let uid = response["uid"].as_str().unwrap_or_default();
        if is_v1 && uid != self.uid {
            return Err(format!("expected response.uid={:?}, got {uid:?}", self.uid));
        }
        let result = &response["result"];
        match (result["status"].as_str().unwrap_or_default(), result["message"].as_str().unwrap_or_default())
        {
            ("Success", _) => Ok(()),
            (status, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
            (_, message) => Err(message.to_owned()),
        }
    }

    fn one(&self, index: usize, original: &Value, mut converted: Value) -> Result<Value, WebhookError> {
        let alone = self.objects.len() == 1;
        let place = |thing: &str, why: String| {
            WebhookError::Response(if alone {
                format!("{thing}: {why}")
            } else {
                format!("{thing} at index {index}: {why}")
            })
        };
        let thing = if alone { "invalid object" } else { "invalid converted object" };
        let typed = same_type(original, &converted, &self.desired);
        typed.map_err(|why| WebhookError::Response(format!("{thing} at index {index}: {why}")))?;
        same_object(original, &converted).map_err(|why| place(thing, why))?;
        let thing = if alone { "invalid metadata" } else { "invalid metadata in object" };
        restore(original, &mut converted).map_err(|why| place(thing, why))?;
        Ok(converted)
    }
}

/// Refuses an object of another version or kind than requested.
fn same_type(original: &Value, converted: &Value, desired: &str) -> Result<(), String> {
    let of = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (of(converted, "apiVersion"), of(converted, "kind"));
    if version != desired {
        return Err(format!("invalid groupVersion (expected {desired}, received {version})"));
    }
    if kind != of(original, "kind") {
        return Err(format!("invalid kind (expected {}, received {kind})", of(original, "kind")));
    }
    Ok(())
}

/// Refuses an object with another identity than the sent one.
fn same_object(original: &Value, converted: &Value) -> Result<(), String> {
    let pairs = [
        ("name", name(original), name(converted)),
        ("namespace", text(original, "namespace"), text(converted, "namespace")),
        ("UID", text(original, "uid"), text(converted, "uid")),
    ];
    match pairs.into_iter().find(|(_, before, after)| before != after) {
        Some((what, before, after)) => Err(format!("must have the same {what}: {before} != {after}")),
        None => Ok(()),
    }
}

/// Restores the metadata of an object, except for labels and annotations.
fn restore(original: &Value, converted: &mut Value) -> Result<(), String> {
    let answered = match converted.get_mut("metadata").map(Value::take) {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => {
            return Err(format!(
                "invalid metadata of type {} in converted object",
                golang::type_name(&other)
            ));
        }
    };
    let mut metadata = original["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match answered.get(field) {
            None | Some(Value::Null) => drop(metadata.remove(field)),
            Some(answered) => {
                check_texts(field, answered, metadata.get(field))?;
                metadata.insert(field.to_owned(), answered.clone());
            }
        }
    }
    converted["metadata"] = Value::Object(metadata);
    Ok(())
}

/// Refuses invalid labels or annotations.
fn check_texts(field: &str, answered: &Value, original: Option<&Value>) -> Result<(), String> {
    let Value::Object(texts) = answered else {
        let kind = golang::type_name(answered);
        return Err(format!("invalid metadata.{field} of type {kind} in converted object"));
    };
    if let Some((key, other)) = texts.iter().find(|(_, value)| !value.is_string()) {
        let kind = golang::type_name(other);
        return Err(format!("metadata.{field}[{key}] must be a string, but is {kind} in converted object"));
    }
    if original == Some(answered) {
        return Ok(());
    }
    let object = json!({ "metadata": Map::from_iter([(field.to_owned(), answered.clone())]) });
    let causes = if field == "labels" { labels(&object) } else { annotations(&object) };
    if causes.is_empty() { Ok(()) } else { Err(Cause::aggregate(&causes)) }
}

#[cfg(test)]
mod tests;
