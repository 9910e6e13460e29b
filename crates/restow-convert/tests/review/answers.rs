//! Reviews that succeed.

use restow_convert::review::{Limits, PairCount, Review, Scope};
use serde_json::{Value, json};

use crate::fixture::{answer, answer_within, converters, response, review, widget};

#[test]
fn an_answer_has_all_objects_in_their_order() {
    let objects: Vec<_> = (0..50).map(|number| widget("v1", &format!("w{number}"))).collect();
    let answer = answer(&review(&objects));
    let response = response(&answer);
    let converted = response["convertedObjects"].as_array().unwrap();
    assert_eq!(response["result"]["status"], "Success");
    assert_eq!(converted.len(), 50);
    for (before, after) in objects.iter().zip(converted) {
        assert_eq!(after["metadata"], before["metadata"]);
        assert_eq!(after["apiVersion"], "example.com/v2");
        assert_eq!(after["spec"], json!({"length": 3}));
    }
    let [PairCount { pair, objects: 50 }] = &answer.converted[..] else { panic!("{:?}", answer.converted) };
    assert_eq!([&pair.group, &pair.kind, &pair.from, &pair.to], ["example.com", "Widget", "v1", "v2"]);
}

#[test]
fn an_answer_has_the_version_of_its_review() {
    for version in ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"] {
        let mut review: Value = serde_json::from_str(&review(&[widget("v1", "w")])).unwrap();
        review["apiVersion"] = version.into();
        review["response"] = Value::Null;
        let answer = answer(&review.to_string());
        let body: Value = serde_json::from_slice(&answer.body.to_vec()).unwrap();
        assert_eq!(body["apiVersion"], version);
        assert_eq!(response(&answer)["convertedObjects"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_uid_is_copied_whatever_it_contains() {
    let uid = "\"\\\n\u{1F600} \u{0}";
    let mut body: Value = serde_json::from_str(&review(&[widget("v1", "w")])).unwrap();
    body["request"]["uid"] = uid.into();
    for name in ["w", "refused"] {
        body["request"]["objects"][0]["metadata"]["name"] = name.into();
        let answer = answer(&body.to_string());
        let answered: Value = serde_json::from_slice(&answer.body.to_vec()).unwrap();
        assert_eq!(answered["response"]["uid"], uid);
        assert_eq!(answer.failure.is_some(), name == "refused");
    }
}

#[test]
fn an_object_that_has_the_wanted_version_is_passed_on_byte_for_byte() {
    let as_it_is = r#"{ "kind":"Widget","apiVersion":"example.com/v2", "spec":{"n":1.10,"big":123456789012345678901234567890} }"#;
    let objects = format!("[{},{as_it_is}]", widget("v1", "w"));
    let body = review(&[]).replace(r#""objects":[]"#, &format!(r#""objects":{objects}"#));
    let answer = answer(&body);
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(text.contains(as_it_is), "{text}");
    assert_eq!(answer.converted[0].objects, 1);
}

#[test]
fn a_review_without_objects_succeeds() {
    for objects in ["[]", "null"] {
        let body = review(&[]).replace(r#""objects":[]"#, &format!(r#""objects":{objects}"#));
        assert_eq!(response(&answer(&body))["convertedObjects"], json!([]));
    }
    assert_eq!(
        response(&answer(&review(&[]).replace(r#""objects":[],"#, "")))["convertedObjects"],
        json!([])
    );
}

#[test]
fn several_kinds_may_be_in_one_review_unless_the_path_is_for_one() {
    let mut other = widget("v1", "s");
    other["kind"] = "Spoiled".into();
    let body = review(&[widget("v1", "w"), other]);
    assert_eq!(answer(&body).converted.len(), 2);
    let scope = Scope::Kind { group: "example.com", kind: "Widget" };
    let failure = answer_within(&body, Limits::default(), scope).failure.unwrap();
    assert_eq!(
        failure.message,
        "Spoiled default/s: this path is for Widget.example.com, not for Spoiled.example.com"
    );
}

#[test]
fn each_object_is_announced_before_it_is_converted() {
    let body = review(&[widget("v1", "a"), widget("v2", "already"), widget("v1", "b")]);
    let seen = std::sync::Mutex::new(Vec::new());
    let proceed = |place: &restow_convert::review::Place| {
        seen.lock().unwrap().push(place.to_string());
        true
    };
    let review = Review::parse(body.as_bytes(), Limits::default()).unwrap();
    assert_eq!((review.count(), review.desired()), (3, "example.com/v2"));
    review.convert(&converters(), Scope::All, &proceed);
    assert_eq!(*seen.lock().unwrap(), ["Widget default/a", "Widget default/b"]);
}
