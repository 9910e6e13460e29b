//! Reviews that fail, and bodies that are no reviews.

use restow_convert::review::{Limits, MalformedReview, Reason, Review, Scope};
use serde_json::{Value, json};

use crate::fixture::{answer, answer_within, converters, response, review, spoiled, widget};

#[test]
fn one_object_that_cannot_be_converted_fails_the_review_and_is_named() {
    let body = review(&[widget("v1", "a"), widget("v1", "refused"), widget("v1", "b")]);
    let answer = answer(&body);
    let response = response(&answer);
    let message = "Widget default/refused: not a Kubernetes object: it is called refused";
    assert_eq!(response["result"]["message"], message);
    assert_eq!(response["result"]["status"], "Failure");
    assert_eq!(answer.failure.unwrap().pair.unwrap().from, "v1");
}

#[test]
fn every_problem_of_an_object_has_a_message_that_names_it() {
    let deep = |levels: usize| {
        let mut object = widget("v1", "deep");
        object["spec"] = (0..levels).fold(json!(1), |inner, _| json!([inner]));
        object
    };
    let with = |pointer: &str, value: Value| {
        let mut object = widget("v1", "w");
        *object.pointer_mut(pointer).unwrap() = value;
        object
    };
    let cases = [
        (json!(3), Reason::NotAnObject, "object 1: not a Kubernetes object: it has no apiVersion"),
        (with("/kind", json!(1)), Reason::NotAnObject, "object 1: not a Kubernetes object: it has no kind"),
        (
            with("/metadata", json!([])),
            Reason::NotAnObject,
            "object 1: not a Kubernetes object: it has no metadata",
        ),
        (
            with("/kind", json!("Gadget")),
            Reason::UnknownKind,
            "Gadget default/w: there is no converter for Gadget.example.com",
        ),
        (
            with("/apiVersion", json!("other.com/v1")),
            Reason::UnknownKind,
            "Widget default/w: desiredAPIVersion is example.com/v2, which is not of the group of Widget.other.com",
        ),
        (
            with("/apiVersion", json!("v1")),
            Reason::UnknownKind,
            "Widget default/w: desiredAPIVersion is example.com/v2, which is not of the group of Widget",
        ),
        (
            with("/apiVersion", json!("example.com/v9")),
            Reason::UnknownVersion,
            "Widget default/w: unknown version v9; known versions: v1, v2",
        ),
        (deep(101), Reason::TooLarge, "Widget default/deep: it is nested more than 100 levels deep"),
        (
            deep(200),
            Reason::NotAnObject,
            "Widget default/deep: not a Kubernetes object: recursion limit exceeded",
        ),
        (
            spoiled(json!({"panic": true})),
            Reason::Panicked,
            "Spoiled default/s: the converter panicked; the log of the webhook has the message",
        ),
        (
            spoiled(json!({"set": "/kind", "to": "Other"})),
            Reason::BrokenResult,
            "Spoiled default/s: the converter changed kind",
        ),
        (
            spoiled(json!({"set": "/apiVersion", "to": "example.com/v1"})),
            Reason::BrokenResult,
            "Spoiled default/s: the converter changed apiVersion to another version",
        ),
        (
            spoiled(json!({"set": "/metadata/name", "to": "x"})),
            Reason::BrokenResult,
            "Spoiled default/s: the conversion from v1 to v2 changed metadata.name;",
        ),
        (spoiled(json!({"set": "/metadata/uid", "to": "x"})), Reason::BrokenResult, "changed metadata.uid;"),
        (spoiled(json!({"remove": "namespace"})), Reason::BrokenResult, "changed metadata.namespace;"),
        (
            spoiled(json!({"add": "finalizers", "to": ["f"]})),
            Reason::BrokenResult,
            "changed metadata.finalizers;",
        ),
        (spoiled(json!({"set": "/metadata", "to": "text"})), Reason::BrokenResult, "changed metadata.name;"),
        (
            spoiled(json!({"add": "annotations", "to": {"a": 1}})),
            Reason::BrokenResult,
            "metadata.annotations that is not a map of texts",
        ),
        (
            spoiled(json!({"set": "/metadata/labels", "to": []})),
            Reason::BrokenResult,
            "metadata.labels that is not a map of texts",
        ),
    ];
    for (object, reason, expected) in cases {
        let answer = answer(&review(&[object]));
        response(&answer);
        let failure = answer.failure.unwrap();
        assert!(failure.message.contains(expected), "{} is not {expected}", failure.message);
        assert_eq!(failure.reason, reason, "{expected}");
    }
}

#[test]
fn labels_and_annotations_may_change() {
    let changes = [
        spoiled(json!({"remove": "labels"})),
        spoiled(json!({"add": "annotations", "to": {"a": "b"}})),
        spoiled(json!({"set": "/metadata/labels", "to": {"other": "label"}})),
    ];
    for object in changes {
        assert!(answer(&review(&[object])).failure.is_none());
    }
}

#[test]
fn an_unknown_wanted_version_is_a_failure() {
    for (desired, expected) in
        [("example.com/v9", "unknown version v9"), ("v2", "not of the group of"), ("", "not of the group of")]
    {
        let body = review(&[widget("v1", "w")]).replace("example.com/v2", desired);
        let failure = answer(&body).failure.unwrap();
        assert!(failure.message.contains(expected), "{}", failure.message);
    }
}

#[test]
fn limits_are_kept() {
    let objects: Vec<_> = (0..3).map(|number| widget("v1", &number.to_string())).collect();
    let body = review(&objects);
    let within = |limits| answer_within(&body, limits, Scope::All).failure.map(|failure| failure.message);
    let none = Limits::default();
    assert_eq!(within(Limits { objects: 3, ..none }), None);
    assert_eq!(within(Limits { objects: 2, ..none }).unwrap(), "the review has 3 objects; the limit is 2");
    assert!(within(Limits { answer_bytes: 400, ..none }).unwrap().contains("more than 400 bytes"));
    assert!(within(Limits { depth: 2, ..none }).unwrap().contains("nested more than 2 levels deep"));
    assert_eq!(within(Limits { depth: 3, ..none }), None);
    let error = Review::parse(body.as_bytes(), Limits { bytes: body.len() - 1, ..none }).unwrap_err();
    assert!(matches!(error, MalformedReview::TooLarge { .. }));
    assert!(Review::parse(body.as_bytes(), Limits { bytes: body.len(), ..none }).is_ok());
}

#[test]
fn a_conversion_can_be_stopped_between_two_objects() {
    let objects: Vec<_> = (0..3).map(|number| widget("v1", &number.to_string())).collect();
    let body = review(&objects);
    let review = Review::parse(body.as_bytes(), Limits::default()).unwrap();
    let answer = review.convert(&converters(), Scope::All, &|place| place.index() < 2);
    let failure = answer.failure.unwrap();
    assert_eq!(
        (failure.reason, failure.message.as_str()),
        (Reason::Stopped, "Widget default/2: the conversion was stopped")
    );
    assert_eq!(answer.converted[0].objects, 2);
}

#[test]
fn a_body_that_is_no_review_is_an_error() {
    let good = review(&[]);
    let without = |field: &str| {
        let mut value: Value = serde_json::from_str(&good).unwrap();
        value["request"].as_object_mut().unwrap().remove(field);
        value.to_string()
    };
    let cases = [
        (String::new(), "not a ConversionReview"),
        ("null".to_owned(), "not a ConversionReview"),
        ("[]".to_owned(), "not a ConversionReview"),
        ("{}".to_owned(), "not a ConversionReview"),
        (good[..good.len() - 1].to_owned(), "not a ConversionReview"),
        (format!("{good}x"), "not a ConversionReview"),
        (good.replace("\"ConversionReview\"", "\"AdmissionReview\""), "found AdmissionReview of"),
        (good.replace("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v2"), "v1 or v1beta1, found"),
        (good.replace("apiextensions.k8s.io/v1", "v1"), "v1 or v1beta1, found"),
        (good.replace("apiextensions.k8s.io/v1", "admission.k8s.io/v1"), "v1 or v1beta1, found"),
        (without("uid"), "not a ConversionReview"),
        (without("desiredAPIVersion"), "not a ConversionReview"),
        (good.replace(r#""request":"#, r#""response":"#), "has no request"),
        (good.replace(r#""objects":[]"#, r#""objects":{}"#), "not a ConversionReview"),
        (good.replace(r#""objects":[]"#, r#""objects":"x""#), "not a ConversionReview"),
    ];
    for (body, expected) in cases {
        let error = Review::parse(body.as_bytes(), Limits::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{body}: {error}");
    }
}

#[test]
fn messages_are_bounded() {
    let name = "x".repeat(1 << 20);
    let body = review(&[widget(&name, &name)]);
    let failure = answer(&body).failure.unwrap();
    assert!(failure.message.chars().count() <= 4097, "{}", failure.message.len());
}
