//! A short name for a JSON value: equal values have equal fingerprints.

use std::fmt::Write;

use serde_json::{Number, Value};
use sha2::{Digest, Sha256};

/// The fingerprint of a value. The order of fields does not matter, nor whether 1 is written as 1.0: an API server
/// changes both.
pub(crate) fn fingerprint(value: &Value) -> String {
    let mut hash = Sha256::new();
    feed(&mut hash, value);
    hash.finalize()[..8].iter().fold(String::with_capacity(16), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn feed(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"n"),
        Value::Bool(true) => hash.update(b"t"),
        Value::Bool(false) => hash.update(b"f"),
        Value::Number(number) => feed_text(hash, b'#', &canonical(number)),
        Value::String(text) => feed_text(hash, b'"', text),
        Value::Array(items) => {
            feed_length(hash, b'[', items.len());
            items.iter().for_each(|item| feed(hash, item));
        }
        Value::Object(fields) => {
            feed_length(hash, b'{', fields.len());
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in sorted {
                feed_text(hash, b':', name);
                feed(hash, value);
            }
        }
    }
}

fn feed_text(hash: &mut Sha256, tag: u8, text: &str) {
    feed_length(hash, tag, text.len());
    hash.update(text.as_bytes());
}

fn feed_length(hash: &mut Sha256, tag: u8, length: usize) {
    hash.update([tag]);
    hash.update((length as u64).to_le_bytes());
}

fn canonical(number: &Number) -> String {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
            format!("{:.0}", float + 0.0)
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_values_have_equal_fingerprints_and_others_do_not() {
        let same = [
            (json!({"a": 1, "b": [true]}), json!({"b": [true], "a": 1})),
            (json!(1.0), json!(1)),
            (json!(-0.0), json!(0)),
        ];
        for (one, other) in same {
            assert_eq!(fingerprint(&one), fingerprint(&other), "{one} {other}");
        }
        let all = [
            json!(null),
            json!(true),
            json!(false),
            json!(0),
            json!(1.5),
            json!(""),
            json!("0"),
            json!([]),
            json!({}),
            json!([[]]),
            json!([null]),
            json!(["ab"]),
            json!(["a", "b"]),
            json!({"a": "b"}),
            json!({"ab": ""}),
            json!({"a": {"b": 1}}),
            json!({"a": {}, "b": 1}),
        ];
        for (place, one) in all.iter().enumerate() {
            for other in &all[place + 1..] {
                assert_ne!(fingerprint(one), fingerprint(other), "{one} {other}");
            }
        }
    }
}
