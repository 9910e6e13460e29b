//! Converters that behave well and badly, and reviews for them.

use restow_convert::review::{Answer, Limits, Review, Scope};
use restow_convert::{Converter, Converters, Convertible, Error};
use serde_json::{Value, json};

/// A converter made of a function.
struct By<F>(F);

impl<F: Fn(Value, &str) -> Result<Value, Error> + Send + Sync> Convertible for By<F> {
    fn convert(&self, object: Value, version: &str) -> Result<Value, Error> {
        (self.0)(object, version)
    }
}

/// Renames `spec.size` of v1 to `spec.length` in v2.
fn rename(mut object: Value, version: &str) -> Result<Value, Error> {
    if object["metadata"]["name"] == "refused" {
        return Err(Error::NotAnObject("it is called refused"));
    }
    let (old, new) = if version == "v1" { ("length", "size") } else { ("size", "length") };
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(value) = spec.remove(old)
    {
        spec.insert(new.to_owned(), value);
    }
    object["apiVersion"] = format!("example.com/{version}").into();
    Ok(object)
}

/// A set with a good converter for Widget, and one for Spoiled that does whatever the object asks for.
pub(crate) fn converters() -> Converters {
    let spoil = |object: Value, version: &str| {
        let how = object["spec"].clone();
        let mut object = rename(object, version)?;
        assert_ne!(how["panic"], true, "asked to panic");
        if let Some(pointer) = how["set"].as_str() {
            *object.pointer_mut(pointer).unwrap() = how["to"].clone();
        }
        if let Some(field) = how["remove"].as_str() {
            object["metadata"].as_object_mut().unwrap().remove(field);
        }
        if let Some(field) = how["add"].as_str() {
            object["metadata"][field] = how["to"].clone();
        }
        Ok(object)
    };
    let versions = ["v1", "v2"];
    Converters::new([
        Converter::new("example.com", "Widget", versions, By(rename)),
        Converter::new("example.com", "Spoiled", versions, By(spoil)),
        Converter::new("other.com", "Widget", versions, By(rename)),
    ])
    .unwrap()
}

pub(crate) fn widget(version: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Widget",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {"a": "b"}},
        "spec": {"size": 3},
    })
}

pub(crate) fn spoiled(spec: Value) -> Value {
    let mut object = widget("v1", "s");
    object["kind"] = "Spoiled".into();
    object["spec"] = spec;
    object
}

pub(crate) fn review(objects: &[Value]) -> String {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "705ab4f5", "desiredAPIVersion": "example.com/v2", "objects": objects},
    })
    .to_string()
}

pub(crate) fn answer(body: &str) -> Answer {
    answer_within(body, Limits::default(), Scope::All)
}

pub(crate) fn answer_within(body: &str, limits: Limits, scope: Scope<'_>) -> Answer {
    Review::parse(body.as_bytes(), limits).unwrap().convert(&converters(), scope, &|_| true)
}

/// The response, after a check of what every answer has.
pub(crate) fn response(answer: &Answer) -> Value {
    let mut body: Value = serde_json::from_slice(&answer.body.to_vec()).unwrap();
    assert_eq!(body["kind"], "ConversionReview");
    assert_eq!(body["response"]["uid"], "705ab4f5");
    let failed = body["response"]["result"]["status"] == "Failure";
    assert_eq!(failed, answer.failure.is_some());
    assert_eq!(failed, body["response"].get("convertedObjects").is_none());
    body["response"].take()
}
