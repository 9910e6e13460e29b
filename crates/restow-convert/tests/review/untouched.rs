//! Fields that a conversion does not touch stay text. That never shows: the answer is the one of a converter that reads everything.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::review::{Limits, Observer, Place, Review, Scope};
use restow_convert::{Converters, Convertible as _, Unchanged};
use serde_json::{Value, json};

use crate::target::{BOTH, VERSIONS, chain, check};

fn review(objects: &[String], desired: &str) -> String {
    let objects = objects.join(",");
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview",
            "request":{{"uid":"u","desiredAPIVersion":"example.com/{desired}","objects":[{objects}]}}}}"#
    )
}

/// The answer, after a check that it is the one of a converter that reads everything. Null if it is no review.
fn answer(objects: &[String], desired: &str) -> Value {
    check(review(objects, desired).as_bytes()).unwrap_or_default()
}

/// The text of the only converted object.
fn converted_text(object: &str, desired: &str) -> String {
    answer(&[object.to_owned()], desired);
    let body = review(&[object.to_owned()], desired);
    let review = Review::parse(body.as_bytes(), Limits::default()).unwrap();
    String::from_utf8(review.convert(&BOTH[0], Scope::All, &|_| true).body.to_vec()).unwrap()
}

fn boxed(version: &str, rest: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.com/{version}","kind":"Box","metadata":{{"name":"b","namespace":"d",
            "managedFields":[{{"fieldsV1":{{"f:spec":{{}}}}}}]}}{rest}}}"#
    )
}

#[test]
fn untouched_fields_are_passed_on_byte_for_byte() {
    let cases = [
        r#""env":[{"name":"a","value":"\u003ctag\u003e"}, {"value" : "ü\n\"\\" }]"#,
        r#""any":1.10"#,
        r#""any":1e2"#,
        r#""any":-0"#,
        r#""any":123456789012345678901234567890"#,
        r#""any":9007199254740993"#,
        r#""any":0.1000000000000000055511151231257827"#,
        r#""env":[{"name":"twice","name":"again"}]"#,
    ];
    for case in cases {
        for (from, to) in [("v1alpha1", "v1"), ("v1", "v1beta1")] {
            let text = converted_text(&boxed(from, &format!(r#","spec":{{{case}}}"#)), to);
            assert!(text.contains(case), "{case} is not in {text}");
            assert!(text.contains(r#""managedFields":[{"fieldsV1":{"f:spec":{}}}]"#), "{text}");
        }
    }
    let inner = r#""free":{"b":[1.0 ,{"a":null}],"a":{}}"#;
    let text = converted_text(&boxed("v1", &format!(r#","spec":{{"template":{{{inner}}}}}"#)), "v1beta1");
    assert!(text.contains(inner), "{text}");
}

#[test]
fn what_is_unusual_is_read_as_a_whole() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let cases = [
        r#","spec":{"env":[{"unknown":1}]}"#.to_owned(),
        r#","spec":{"env":[{"name":"a"}],"env":[]}"#.to_owned(),
        r#","spec":{"env":[]},"spec":{"env":[{"name":"a"}],"size":3}"#.to_owned(),
        r#","spec":{"env":[]},"spec":null"#.to_owned(),
        r#","metadata":{"name":"other","uid":"twice"}"#.to_owned(),
        r#","metadata":{"uid":"a","uid":"b"}"#.to_owned(),
        r#","spec":{"e\u006ev":[{"name":"escaped"}],"any":1}"#.to_owned(),
        r#","spec":{"any":"\ud83d\ude00"}"#.to_owned(),
        r#","spec":{"any":"\ud83d"}"#.to_owned(),
        r#","spec":{"any":1e999}"#.to_owned(),
        r#","spec":{"policy":null,"any":"x"}"#.to_owned(),
        r#","spec":{"template":{"place":3,"resources":{}}}"#.to_owned(),
        r#","spec":{"template":"none","env":[]}"#.to_owned(),
        r#","spec":[{"env":[]}]"#.to_owned(),
        r#","spec":{"template":{"resources":{"cpu":{"n":1,"m":2}}}}"#.to_owned(),
        r#","status":{"lines":["a"],"more":1},"unknown":{"b":1}"#.to_owned(),
        r#","kind":"Box","apiVersion":"example.com/v1beta1","spec":{"any":1}"#.to_owned(),
        format!(r#","spec":{{"template":{{"free":{}}}}}"#, deep(97)),
        format!(r#","spec":{{"template":{{"free":{}}}}}"#, deep(98)),
        format!(r#","spec":{{"template":{{"free":{}}}}}"#, deep(120)),
        format!(r#","spec":{{"any":{}}}"#, deep(99)),
        format!(
            r#","metadata":{{"name":"n",{}}}"#,
            (0..200).map(|n| format!(r#""f{n}":{n}"#)).collect::<Vec<_>>().join(",")
        ),
    ];
    for case in cases {
        for from in VERSIONS {
            for to in VERSIONS {
                answer(&[boxed(from, &case)], to);
            }
        }
    }
}

#[test]
fn an_object_that_a_rule_made_is_not_removed_with_what_was_added_to_it() {
    // Without `spec`, a rule makes one on the way to v1. The way back removes it, unless it has got something else.
    let there = answer(&[boxed("v1beta1", "")], "v1")["response"]["convertedObjects"][0].clone();
    assert_eq!(there["spec"], json!({"added": {"made": "by a rule"}}));
    let back = answer(&[there.to_string()], "v1beta1")["response"]["convertedObjects"][0].clone();
    assert_eq!(back["spec"], Value::Null);
    let mut edited = there;
    edited["spec"]["env"] = json!([{"name": "added"}]);
    let back = answer(&[edited.to_string()], "v1beta1")["response"]["convertedObjects"][0].clone();
    assert_eq!(back["spec"]["env"], json!([{"name": "added"}]));
}

#[test]
fn objects_of_several_versions_and_kinds_may_be_mixed() {
    let of = |version: &str| boxed(version, r#","spec":{"env":[{"name":"a"}],"size":1}"#);
    let mut objects: Vec<_> = (0..30).map(|number| of(VERSIONS[number % 3])).collect();
    assert_eq!(answer(&objects, "v1")["response"]["convertedObjects"].as_array().map(Vec::len), Some(30));
    for odd in
        ["3", "null", "[]", "{}", r#"{"kind":"Box"}"#, r#"{"apiVersion":"example.com/v1beta1","kind":"Bin"}"#]
    {
        objects.push(odd.to_owned());
        let message = answer(&objects, "v1")["response"]["result"]["message"].clone();
        assert!(message.is_string(), "{odd}");
        objects.pop();
    }
}

#[test]
fn objects_of_equal_versions_stay_text_but_for_their_version() {
    let spec = json!({"x-kubernetes-preserve-unknown-fields": true, "type": "object"});
    let version = |name: &str| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
    };
    let names = json!({"kind": "Box", "plural": "boxes"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names,
        "versions": [version("v1beta1"), version("v1")]});
    let definition: CustomResourceDefinition =
        serde_json::from_value(json!({"metadata": {"name": "boxes.example.com"}, "spec": spec})).unwrap();
    let converters = Converters::new([Unchanged::of(&definition).unwrap().into()]).unwrap();
    let body = review(&[boxed("v1beta1", r#","spec":{"z":1.10,"a":[ ]}"#)], "v1");
    let answer =
        Review::parse(body.as_bytes(), Limits::default())
            .unwrap()
            .convert(&converters, Scope::All, &|_| true);
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(
        text.contains(r#""spec":{"z":1.10,"a":[ ]}"#) && text.contains(r#""apiVersion":"example.com/v1""#),
        "{text}"
    );
}

/// A random value, sometimes one that the schema does not know.
fn value(random: &mut fastrand::Rng, depth: usize) -> Value {
    const NAMES: [&str; 12] = [
        "name",
        "value",
        "env",
        "size",
        "width",
        "place",
        "shelf",
        "resources",
        "free",
        "template",
        "any",
        "x",
    ];
    match random.u8(0..if depth == 0 { 6 } else { 9 }) {
        0 => Value::Null,
        1 => random.bool().into(),
        2 => random.i64(..).into(),
        3 => random.f64().into(),
        4 => "a/b".into(),
        5 => "<\u{1F600}>\"".into(),
        6 => (0..random.usize(0..3)).map(|_| value(random, depth - 1)).collect(),
        _ => {
            let count = random.usize(0..4);
            let names = std::iter::repeat_with(|| NAMES[random.usize(0..NAMES.len())])
                .take(count)
                .collect::<Vec<_>>();
            Value::Object(names.into_iter().map(|name| (name.to_owned(), value(random, depth - 1))).collect())
        }
    }
}

fn random_box(random: &mut fastrand::Rng, version: &str) -> Value {
    let mut spec = json!({"env": [{"name": "a", "value": "1"}, {"name": "b"}], "any": 1, "policy": "Keep",
        "template": {"resources": {"cpu": {"n": 1}}, "free": {"x": [1.5]}}});
    spec[if version == "v1alpha1" { "width" } else { "size" }] = 3.into();
    spec["template"]["place"] =
        if version == "v1" { json!({"shelf": "s", "row": "r"}) } else { "s/r".into() };
    let mut object = json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Box",
        "metadata": {"name": "b", "labels": {"a": "b"}, "uid": "u", "finalizers": ["f"]},
        "spec": spec, "status": {"lines": ["one"]},
    });
    for _ in 0..random.usize(0..4) {
        disturb(random, &mut object);
    }
    object
}

/// Puts a random value somewhere into an object.
fn disturb(random: &mut fastrand::Rng, object: &mut Value) {
    const PLACES: [&str; 12] = [
        "/spec",
        "/spec/env",
        "/spec/env/0",
        "/spec/env/1/name",
        "/spec/template",
        "/spec/template/place",
        "/spec/template/resources",
        "/spec/template/free",
        "/spec/any",
        "/status",
        "/metadata/labels",
        "/spec/size",
    ];
    let new = value(random, 3);
    let Some(place) = object.pointer_mut(PLACES[random.usize(0..PLACES.len())]) else { return };
    match place {
        Value::Object(fields) if random.u8(0..4) > 0 => {
            fields.insert(["extra", "x", "name"][random.usize(0..3)].to_owned(), new);
        }
        place => *place = new,
    }
}

#[test]
fn random_objects_are_converted_as_if_everything_was_read() {
    let mut random = fastrand::Rng::with_seed(3);
    let slow = chain();
    for _ in 0..1_000 {
        let [from, by, to] = [0; 3].map(|_| VERSIONS[random.usize(0..3)]);
        let mut object = random_box(&mut random, from);
        answer(&[object.to_string()], to);
        // Something was kept of it, and then it was edited.
        let Ok(mut there) = slow.convert(object.take(), by) else { continue };
        answer(&[there.to_string()], to);
        disturb(&mut random, &mut there);
        answer(&[there.to_string()], to);
    }
}

#[test]
fn mutated_texts_are_converted_as_if_everything_was_read() {
    const PIECES: [&str; 18] = [
        "null",
        "1",
        "{}",
        "[]",
        "\"\"",
        "\"\\u0061\"",
        "\"\\ud800\"",
        "1e999",
        "-1.50",
        "\"x\":1,",
        ",",
        "}",
        "]",
        " ",
        "\"env\":[],",
        "\"spec\":{},",
        "\"metadata\":{},",
        "\\",
    ];
    let mut random = fastrand::Rng::with_seed(4);
    let mut parsed = 0;
    for _ in 0..8_000 {
        let [from, to] = [0; 2].map(|_| VERSIONS[random.usize(0..3)]);
        let mut text = random_box(&mut random, from).to_string();
        for _ in 0..random.usize(1..3) {
            let at = random.usize(0..=text.len());
            let end = (at + [0, 0, 1, 5][random.usize(0..4)]).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) {
                text.replace_range(at..end, PIECES[random.usize(0..PIECES.len())]);
            }
        }
        parsed += u32::from(!answer(&[text], to).is_null());
    }
    assert!(parsed > 400, "only {parsed} of the mutated texts were JSON");
}

struct Follow;

impl Observer for Follow {
    fn begin(&self, _: &Place) -> bool {
        true
    }

    fn end(&self, _: &Place) {}
}

#[test]
fn several_threads_give_the_answer_of_one() {
    let mut random = fastrand::Rng::with_seed(5);
    let large = |random: &mut fastrand::Rng| {
        let mut object = random_box(random, "v1beta1");
        object["metadata"] = json!({"name": "large", "namespace": "d", "labels": null});
        object["spec"] = json!({"any": "x".repeat(random.usize(100..30_000)), "size": 3});
        object
    };
    let mut objects: Vec<_> = (0..200).map(|_| large(&mut random)).collect();
    for round in 0..8 {
        let mut limits = Limits::default();
        match round {
            0..3 => {}
            3 => limits.answer_bytes = 1_000_000,
            // Several fail; the first one counts.
            _ => [150, 60 + round, 190]
                .into_iter()
                .for_each(|bad| objects[bad]["spec"]["template"] = json!({"place": 7})),
        }
        let texts: Vec<_> = objects.iter().map(Value::to_string).collect();
        let body = review(&texts, "v1");
        let review = Review::parse(body.as_bytes(), limits).unwrap();
        let alone = review.convert(&BOTH[0], Scope::All, &|_| true);
        assert_eq!(alone.failure.is_some(), round >= 3, "{:?}", alone.failure);
        for helpers in [1, 3, 100] {
            let together = review.convert_on(helpers, &BOTH[0], Scope::All, &Follow);
            assert_eq!(together.failure, alone.failure);
            assert_eq!(together.body, alone.body);
            if alone.failure.is_none() {
                assert_eq!(together.converted, alone.converted);
            }
        }
    }
}
