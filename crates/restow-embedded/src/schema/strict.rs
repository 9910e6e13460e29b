//! Fields that are unknown or given twice, for those who ask to be told.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::child;
use crate::failure::Failure;
use crate::failure::golang::quote;

/// What is done about fields that are unknown or given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// The client is warned.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// The most warnings one request gets.
const MOST_WARNINGS: usize = 32;

impl FieldValidation {
    /// Reads the query's value; empty is the default.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }

    /// Warnings for what was found in an object of this kind, or the refusal of it.
    pub fn judge(
        self,
        kind: &str,
        version: &str,
        twice: &[String],
        unknown: &[String],
    ) -> Result<Vec<String>, Failure> {
        let mut found: Vec<_> = twice.iter().map(|path| format!("duplicate field {}", quote(path))).collect();
        found.extend(unknown.iter().map(|path| format!("unknown field {}", quote(path))));
        match self {
            Self::Strict if !found.is_empty() => Err(Failure::bad_request(format!(
                "{kind} in version {} cannot be handled as a {kind}: strict decoding error: {}",
                quote(version),
                found.join(", ")
            ))),
            Self::Warn => {
                found.truncate(MOST_WARNINGS);
                Ok(found)
            }
            _ => Ok(Vec::new()),
        }
    }
}

/// The paths of fields that a JSON text gives twice.
pub fn duplicates(json: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(json);
    // What is no JSON is refused elsewhere.
    let _ = Seeker { path: String::new(), found: &mut found }.deserialize(&mut reader);
    found
}

struct Seeker<'a> {
    path: String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Seeker<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seeker<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = std::collections::BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = child(&self.path, &key);
            if !seen.insert(key) && !self.found.contains(&path) {
                self.found.push(path.clone());
            }
            map.next_value_seed(Seeker { path, found: self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(()) =
            seq.next_element_seed(Seeker { path: format!("{}[{index}]", self.path), found: self.found })?
        {
            index += 1;
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_given_twice_are_found() {
        let cases: [(&str, &[&str]); 4] = [
            (r#"{"a": 1, "b": {"c": 1}}"#, &[]),
            (r#"{"a": 1, "a": {"a": 1}}"#, &["a"]),
            (r#"{"a": [{"b": 1}, {"b": 1, "b": 2, "b": 3}]}"#, &["a[1].b"]),
            (r#"{"a": 1, "#, &[]),
        ];
        for (json, paths) in cases {
            assert_eq!(duplicates(json.as_bytes()), paths, "{json}");
        }
    }

    #[test]
    fn who_asks_is_told() {
        let (twice, unknown) = (["spec.a".to_owned()], ["spec.b".to_owned()]);
        let refusal = FieldValidation::Strict.judge("Widget", "v1", &twice, &unknown).unwrap_err();
        assert_eq!(
            refusal.message(),
            "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: duplicate field \
             \"spec.a\", unknown field \"spec.b\""
        );
        let warnings = FieldValidation::Warn.judge("Widget", "v1", &twice, &unknown).unwrap();
        assert_eq!(warnings, ["duplicate field \"spec.a\"", "unknown field \"spec.b\""]);
        assert!(FieldValidation::Ignore.judge("Widget", "v1", &twice, &unknown).unwrap().is_empty());
        assert!(FieldValidation::Strict.judge("Widget", "v1", &[], &[]).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn no_text_panics(json in any::<Vec<u8>>()) {
            let _ = duplicates(&json);
        }
    }
}
