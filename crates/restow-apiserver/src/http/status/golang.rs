//! Formats strings and values as Go does, for messages that equal those of kube-apiserver.

use std::fmt::Write as _;

use serde_json::Value;

/// A text in double quotes, escaped as Go's `%q` does.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        escape(&mut quoted, letter);
    }
    quoted.push('"');
    quoted
}

/// The type of a JSON value, as Go's decoder names it in errors.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn escape(quoted: &mut String, letter: char) {
    let known = match letter {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        _ => "",
    };
    let code = u32::from(letter);
    // Writing to a String cannot fail.
    let _ = match (known, code) {
        ("", _) if is_printable(letter) => quoted.write_char(letter),
        ("", ..0x80) => write!(quoted, "\\x{code:02x}"),
        ("", ..0x10000) => write!(quoted, "\\u{code:04x}"),
        ("", _) => write!(quoted, "\\U{code:08x}"),
        (known, _) => quoted.write_str(known),
    };
}

/// Whether Go prints a character unescaped. Invisible characters and spaces other than the plain one are escaped.
pub(crate) fn is_printable(letter: char) -> bool {
    let invisible = matches!(u32::from(letter),
        0xad | 0x600..=0x605 | 0x61c | 0x180e | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f
        | 0xe000..=0xf8ff | 0xfeff | 0xfff0..=0xfffb | 0xfffe..=0xffff | 0xe0000..=0x10ffff);
    letter == ' ' || !(letter.is_control() || letter.is_whitespace() || invisible)
}

/// A value in the error message of a field: strings quoted, everything else as JSON.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => show_number(number),
        Value::Bool(_) | Value::Null => value.to_string(),
        Value::Array(_) | Value::Object(_) => json(value),
    }
}

/// A number as Go's `%v` writes it.
pub(crate) fn show_number(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => show_float(float),
        _ => number.to_string(),
    }
}

/// A float as Go's `%v` writes it: shortest form, with an exponent below 1e-4 and from 1e21 on.
pub(crate) fn show_float(float: f64) -> String {
    let size = float.abs();
    if size == 0.0 || (1e-4..1e21).contains(&size) {
        return format!("{float}");
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

/// A value as JSON, with Go's HTML escaping.
pub(crate) fn json(value: &Value) -> String {
    value
        .to_string()
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// The type of a decoded JSON value, as Go's `%T` writes it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
