//! JSON as kube-apiserver stores and sends it, byte for byte: sorted keys, and Go's escaping.

use std::io::{self, Write};

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// The bytes of a value, with the line end that Go's encoder writes.
pub(crate) fn encode(value: &Value) -> Bytes {
    let mut bytes = BytesMut::with_capacity(512);
    append(&mut bytes, value);
    bytes.put_u8(b'\n');
    bytes.freeze()
}

/// Appends a value to a buffer.
pub(crate) fn append(bytes: &mut BytesMut, value: &(impl Serialize + ?Sized)) {
    let mut serializer = Serializer::with_formatter(bytes.writer(), GoFormatter);
    // Keys are strings, and writes to memory do not fail.
    if let Err(error) = value.serialize(&mut serializer) {
        tracing::error!("could not encode a value as JSON: {error}");
    }
}

/// Formats as Go's encoder does.
struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(number(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            writer.write_all(&rest.as_bytes()[..at])?;
            let Some(special) = rest[at..].chars().next() else { break };
            write!(writer, "\\u{:04x}", u32::from(special))?;
            rest = &rest[at + special.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        match escape {
            CharEscape::Quote => writer.write_all(b"\\\""),
            CharEscape::ReverseSolidus => writer.write_all(b"\\\\"),
            CharEscape::Solidus => writer.write_all(b"/"),
            CharEscape::Backspace => writer.write_all(b"\\b"),
            CharEscape::FormFeed => writer.write_all(b"\\f"),
            CharEscape::LineFeed => writer.write_all(b"\\n"),
            CharEscape::CarriageReturn => writer.write_all(b"\\r"),
            CharEscape::Tab => writer.write_all(b"\\t"),
            CharEscape::AsciiControl(byte) => write!(writer, "\\u{byte:04x}"),
        }
    }
}

/// A float: plain unless it is very small or very large, and whole ones without a fraction.
fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        match text.split_once('e') {
            Some((digits, power)) if !power.starts_with('-') => format!("{digits}e+{power:0>2}"),
            Some((digits, power)) => format!("{digits}e-{}", power.trim_start_matches('-')),
            None => text,
        }
    } else {
        format!("{value}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_written_as_go_writes_it() {
        for (value, expected) in [
            (json!({"b": 1, "a": [true, null]}), r#"{"a":[true,null],"b":1}"#),
            (json!("<a & b>"), r#""\u003ca \u0026 b\u003e""#),
            (json!("\u{2028}é\u{7f}"), "\"\\u2028é\u{7f}\""),
            (json!("\u{8}\u{c}\n\r\t\u{1}\"\\/"), r#""\b\f\n\r\t\u0001\"\\/""#),
            (json!(1.0), "1"),
            (json!(-0.5), "-0.5"),
            (json!(1e20), "100000000000000000000"),
            (json!(1e21), "1e+21"),
            (json!(1.5e300), "1.5e+300"),
            (json!(0.000001), "0.000001"),
            (json!(1e-7), "1e-7"),
            (json!(u64::MAX), "18446744073709551615"),
        ] {
            assert_eq!(encode(&value), format!("{expected}\n"), "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn written_json_parses_to_the_same_value(text in ".*", float in proptest::num::f64::NORMAL, whole: i64) {
            let value = json!({"text": text, "float": float, "whole": whole});
            let back: Value = serde_json::from_slice(&encode(&value)).unwrap_or_default();
            proptest::prop_assert_eq!(back["text"].as_str(), Some(text.as_str()));
            proptest::prop_assert_eq!(back["float"].as_f64(), Some(float));
            proptest::prop_assert_eq!(back["whole"].as_i64(), Some(whole));
        }
    }
}
