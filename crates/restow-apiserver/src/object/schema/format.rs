//! The formats of strings and numbers that kube-apiserver validates.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::object::meta::name;

/// A format that is validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// As it was written, such as `date-time`.
    pub text: String,
    /// The name without dashes, for comparison.
    name: String,
}

/// Formats of strings. Those of book, bank and tax numbers are not validated.
const TEXTS: &[&str] = &[
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

impl Format {
    /// The format of a schema, if it is validated for the schema's type.
    pub(crate) fn parse(schema: &Value) -> Option<Self> {
        let text = schema.get("format").and_then(Value::as_str)?;
        let name = text.replace('-', "");
        let known = match schema.get("type").and_then(Value::as_str) {
            None | Some("" | "string") => TEXTS.contains(&name.as_str()),
            Some("integer") => ["int32", "int64"].contains(&text),
            Some("number") => ["float", "double"].contains(&text),
            _ => false,
        };
        known.then(|| Self { text: text.to_owned(), name })
    }

    /// Whether a string has this format.
    pub(crate) fn fits(&self, text: &str) -> bool {
        match self.name.as_str() {
            "uri" => is_uri(text),
            "email" => is_email(text),
            "hostname" => text.len() <= 255 && text.split('.').all(is_host_label),
            "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
            "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
            "cidr" => is_cidr(text),
            "mac" => is_mac(text),
            "uuid" => is_uuid(text, None),
            "uuid3" => is_uuid(text, Some('3')),
            "uuid4" => is_uuid(text, Some('4')),
            "uuid5" => is_uuid(text, Some('5')),
            "hexcolor" => is_hex_color(text),
            "rgbcolor" => is_rgb_color(text),
            "byte" => STANDARD.decode(text).is_ok(),
            "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
            "duration" => is_duration(text),
            "datetime" => is_date_time(text),
            "k8sshortname" => name::label(text).is_empty(),
            "k8slongname" => name::subdomain(text, "characters").is_empty(),
            _ => true,
        }
    }

    /// Whether a number is in the range of this format.
    pub(crate) fn holds(&self, number: &serde_json::Number) -> bool {
        let range = match self.text.as_str() {
            "int32" => -2_147_483_648.0..=2_147_483_647.0,
            "float" => -3.402_823_466_385_288_6e38..=3.402_823_466_385_288_6e38,
            _ => return true,
        };
        number.as_f64().is_some_and(|number| range.contains(&number))
    }
}

fn is_date_time(text: &str) -> bool {
    let shape = text.get(10..11).is_some_and(|at| at.eq_ignore_ascii_case("t"));
    let zoned = text.ends_with(['Z', 'z']) || text.get(text.len().saturating_sub(6)..).is_some_and(is_offset);
    shape && zoned && text.parse::<jiff::Timestamp>().is_ok()
}

fn is_offset(text: &str) -> bool {
    text.starts_with(['+', '-']) && text.get(3..4) == Some(":")
}

fn is_uri(text: &str) -> bool {
    let absolute = text.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
            && !rest.is_empty()
    });
    (absolute || text.starts_with('/')) && !text.contains(|letter: char| letter.is_control() || letter == ' ')
}

fn is_email(text: &str) -> bool {
    text.split_once('@').is_some_and(|(local, domain)| {
        let odd = |letter: char| letter.is_whitespace() || "<>()[],;:\\\"@".contains(letter);
        !local.is_empty() && !domain.is_empty() && !local.contains(odd) && !domain.contains(odd)
    })
}

fn is_host_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = if address.parse::<Ipv4Addr>().is_ok() {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    !bits.is_empty()
        && bits.bytes().all(|digit| digit.is_ascii_digit())
        && bits.parse().is_ok_and(|bits: u8| bits <= most)
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<_> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let dashes = text.char_indices().filter(|(_, letter)| *letter == '-').count();
    digits.len() == 32
        && dashes <= 4
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
        && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        && version.is_none_or(|version| digits.chars().nth(12) == Some(version))
        && (!matches!(version, Some('4' | '5'))
            || digits.chars().nth(16).is_some_and(|variant| "89abAB".contains(variant)))
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn is_rgb_color(text: &str) -> bool {
    let inner = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')'));
    let parts: Vec<_> = inner.map(|inner| inner.split(',').map(str::trim).collect()).unwrap_or_default();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u8>().is_ok())
}

/// A duration as Go writes it: numbers with units.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim();
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(0);
        if digits == 0 || rest[..digits].parse::<f64>().is_err() {
            return false;
        }
        let unit_at = rest[digits..].trim_start();
        let unit =
            unit_at.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(unit_at.len());
        let known = [
            "ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", "w", "nanos", "micros", "millis", "second",
            "seconds", "sec", "secs", "minute", "minutes", "min", "hour", "hours", "hr", "day", "days",
            "week", "weeks",
        ];
        if !known.contains(&unit_at[..unit].trim()) {
            return false;
        }
        rest = &unit_at[unit..];
        parts += 1;
    }
    parts > 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_are_checked_against_their_format() {
        let cases = [
            ("date-time", "2026-01-02T03:04:05Z", true),
            ("date-time", "2026-01-02T03:04:05.6+02:00", true),
            ("date-time", "2026-01-02", false),
            ("date-time", "yesterday", false),
            ("date", "2026-01-02", true),
            ("date", "2026-13-02", false),
            ("byte", "aGk=", true),
            ("byte", "?", false),
            ("ipv4", "10.0.0.1", true),
            ("ipv4", "::1", false),
            ("ipv6", "::1", true),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0/33", false),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", true),
            ("uuid4", "123e4567-e89b-12d3-a456-426614174000", false),
            ("uuid4", "123e4567-e89b-42d3-a456-426614174000", true),
            ("email", "a@b", true),
            ("email", "ab", false),
            ("hostname", "a.b-c", true),
            ("hostname", "a..b", false),
            ("uri", "https://example.com/a", true),
            ("uri", "nothing", false),
            ("mac", "00:11:22:33:44:55", true),
            ("duration", "1h30m", true),
            ("duration", "1 fortnight", false),
            ("password", "anything", true),
            ("k8s-short-name", "a.b", false),
        ];
        for (format, text, fits) in cases {
            let format = Format::parse(&json!({"type": "string", "format": format})).unwrap();
            assert_eq!(format.fits(text), fits, "{format:?} {text}");
        }
    }

    #[test]
    fn a_format_applies_to_one_type() {
        let cases = [
            (json!({"type": "integer", "format": "int32"}), true),
            (json!({"type": "integer", "format": "date"}), false),
            (json!({"type": "string", "format": "odd"}), false),
            (json!({"type": "object", "format": "date"}), false),
        ];
        for (schema, known) in cases {
            assert_eq!(Format::parse(&schema).is_some(), known, "{schema}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>()) {
            for name in TEXTS {
                let _ = Format { text: (*name).to_owned(), name: (*name).to_owned() }.fits(&text);
            }
        }
    }
}
