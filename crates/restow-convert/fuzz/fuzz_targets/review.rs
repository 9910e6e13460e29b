//! Any bytes as a ConversionReview: `cargo +nightly fuzz run review` in crates/restow-convert.

#![no_main]

use libfuzzer_sys::fuzz_target;
use restow_convert::review::{Limits, Review, Scope};
use restow_convert::{Converter, Converters, Convertible, Error};
use serde_json::Value;

struct Renamed;

impl Convertible for Renamed {
    fn convert(&self, mut object: Value, version: &str) -> Result<Value, Error> {
        object["apiVersion"] = format!("e.com/{version}").into();
        Ok(object)
    }
}

fuzz_target!(|body: &[u8]| {
    let Ok(review) = Review::parse(body, Limits::default()) else { return };
    let Ok(converters) = Converters::new([Converter::new("e.com", "W", ["v1", "v2"], Renamed)]) else { return };
    let answer = review.convert(&converters, Scope::All, &|_| true);
    let answered: Value = serde_json::from_slice(&answer.body).expect("an answer is JSON");
    assert_eq!(answered["response"]["uid"], review.head().uid.as_str());
    let count = answered["response"]["convertedObjects"].as_array().map(Vec::len);
    assert_eq!(count, answer.failure.is_none().then_some(review.count()));
});
