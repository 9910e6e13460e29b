//! More than ten million bytes of input that no API server would send. Nothing panics, and every answer is well formed.

use restow_convert::review::{Limits, Review, Scope};
use serde_json::{Value, json};

use crate::fixture::{converters, review, spoiled, widget};

/// How many bytes are tried altogether.
const BYTES: usize = 12_000_000;

/// What is put in the place of a value, or anywhere.
const PIECES: [&str; 24] = [
    "null",
    "true",
    "-1",
    "1e999",
    "1e-999",
    "18446744073709551616",
    "0.1",
    "\"\"",
    "[]",
    "{}",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "{\"\":{}}",
    "\u{feff}",
    ",",
    ":",
    "\\",
    "\"",
    "[[[[",
    "}}}}",
    "\"metadata\":",
    "\"apiVersion\":\"v1\",",
    "\"kind\":\"Widget\",",
    "{\"name\":1}",
];

fn seeds() -> Vec<Vec<u8>> {
    let many: Vec<_> = (0..20).map(|number| widget("v1", &format!("w{number}"))).collect();
    let spoiled = spoiled(json!({"set": "/metadata/name", "to": {"a": [1, {"b": null}]}}));
    [review(&[]), review(&[widget("v1", "w")]), review(&many), review(&[widget("v2", "w"), spoiled])]
        .map(String::into_bytes)
        .into()
}

/// Changes a body a little, or a lot.
fn mutate(random: &mut fastrand::Rng, body: &mut Vec<u8>) {
    let at = random.usize(0..=body.len());
    match random.u8(0..8) {
        0 => body.truncate(at),
        1 if at < body.len() => body[at] = random.u8(..),
        2 => drop(body.splice(at..at, random.choice(PIECES).unwrap_or_default().bytes())),
        3 => {
            let end = (at + random.usize(0..40)).min(body.len());
            drop(body.splice(at..end, random.choice(PIECES).unwrap_or_default().bytes()));
        }
        4 => {
            let open = if random.bool() { b"[".to_vec() } else { b"{\"a\":".to_vec() };
            drop(body.splice(at..at, open.repeat(random.usize(1..5_000))));
        }
        5 => {
            let end = (at + random.usize(0..400)).min(body.len());
            let again = body[at..end].repeat(random.usize(1..8));
            drop(body.splice(at..at, again));
        }
        6 => {
            let count = random.usize(0..64);
            body.extend(std::iter::repeat_with(|| random.u8(..)).take(count));
        }
        _ => body.rotate_left(at % 16),
    }
    body.truncate(200_000);
}

/// Puts something else in the place of one value, so that the body stays JSON.
fn replace_value(random: &mut fastrand::Rng, body: &mut Vec<u8>) {
    let Ok(mut review) = serde_json::from_slice::<Value>(body) else { return };
    let depth = random.usize(0..150);
    let new = match random.u8(0..6) {
        0 => Value::Null,
        1 => (0..depth).fold(Value::from(1), |inner, _| Value::Array(vec![inner])),
        2 => "x".repeat(random.usize(0..3_000)).into(),
        3 => Value::from(random.f64() * 1e300),
        4 => Value::Array(vec![Value::Null; random.usize(0..300)]),
        _ => {
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"labels": {"a": 1}}})
        }
    };
    // Most of the time inside the objects: the head is short.
    let objects = random.u8(0..4) > 0;
    match review.pointer_mut("/request/objects") {
        Some(place) if objects => put(random, place, new),
        _ => put(random, &mut review, new),
    }
    *body = review.to_string().into_bytes();
}

/// Puts a value in the place of another one, or of something below it.
fn put(random: &mut fastrand::Rng, place: &mut Value, new: Value) {
    let below = random.u8(0..6) > 0;
    match place {
        Value::Array(items) if below && !items.is_empty() => {
            let index = random.usize(0..items.len());
            put(random, &mut items[index], new);
        }
        Value::Object(fields) if below && !fields.is_empty() => {
            let index = random.usize(0..fields.len());
            put(random, fields.values_mut().nth(index).unwrap(), new);
        }
        place => *place = new,
    }
}

/// Whatever the answer is, an API server understands it.
fn check(body: &[u8]) {
    let Ok(review) = Review::parse(body, Limits { objects: 10_000, ..Limits::default() }) else { return };
    let answer = review.convert(&converters(), Scope::All, &|_| true);
    let answered: Value = serde_json::from_slice(&answer.body.to_vec()).unwrap();
    assert_eq!(answered["response"]["uid"], review.head().uid.as_str());
    assert_eq!(answered["apiVersion"], review.head().api_version.as_str());
    let converted = answered["response"]["convertedObjects"].as_array().map(Vec::len);
    assert_eq!(converted, answer.failure.is_none().then_some(review.count()));
    if let Some(failure) = answer.failure {
        assert!(failure.message.chars().count() <= 4097);
    }
}

#[test]
fn ten_million_bytes_of_mutated_reviews_panic_nowhere() {
    let mut random = fastrand::Rng::with_seed(12);
    let seeds = seeds();
    let (mut tried, mut parsed) = (0, 0);
    while tried < BYTES {
        let mut body = seeds[random.usize(0..seeds.len())].clone();
        let as_json = random.bool();
        for _ in 0..random.usize(1..6) {
            if as_json { replace_value(&mut random, &mut body) } else { mutate(&mut random, &mut body) }
        }
        tried += body.len().max(1);
        parsed += u32::from(Review::parse(&body, Limits::default()).is_ok());
        check(&body);
    }
    assert!(parsed > 100, "only {parsed} of the mutated bodies were reviews: the mutations are too wild");
}

#[test]
fn deep_nesting_anywhere_is_an_error_and_not_a_stack_overflow() {
    let deep = 1_000_000;
    let good = review(&[widget("v1", "w")]);
    for open in ["[", "{\"a\":"] {
        let nested = open.repeat(deep);
        for place in ["\"objects\":", "\"uid\":", "\"request\":", "\"metadata\":", "\"spec\":", "{"] {
            check(good.replacen(place, &format!("{place}{nested}"), 1).as_bytes());
        }
        check(nested.as_bytes());
    }
    // Closed again, so that it is valid JSON.
    let closed = format!("{}{}", "[".repeat(deep), "]".repeat(deep));
    let object = widget("v1", "w").to_string().replace("\"size\":3", &format!("\"size\":{closed}"));
    let body = review(&[]).replace("\"objects\":[]", &format!("\"objects\":[{object}]"));
    let review = Review::parse(body.as_bytes(), Limits::default()).unwrap();
    let failure = review.convert(&converters(), Scope::All, &|_| true).failure.unwrap();
    assert!(failure.message.starts_with("Widget default/w: not a Kubernetes object"), "{}", failure.message);
}

#[test]
fn millions_of_objects_are_counted_and_not_kept() {
    let body = review(&[]).replace("\"objects\":[]", &format!("\"objects\":[{}0]", "0,".repeat(3_000_000)));
    let review = Review::parse(body.as_bytes(), Limits { objects: usize::MAX, ..Limits::default() }).unwrap();
    let failure = review.convert(&converters(), Scope::All, &|_| true).failure.unwrap();
    assert!(
        failure.message.starts_with("the review has 3000001 objects; the limit is 1000000"),
        "{}",
        failure.message
    );
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_panic_nowhere(body in proptest::collection::vec(proptest::num::u8::ANY, 0..2_000)) {
        check(&body);
    }

    #[test]
    fn arbitrary_json_in_place_of_objects_panics_nowhere(text in "[\\[\\]{}\",:0-9a-z\\\\]{0,200}") {
        let body = review(&[]).replace("\"objects\":[]", &format!("\"objects\":[{text}]"));
        check(body.as_bytes());
    }
}
