//! Fields that are given twice, for those who ask to be told.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::child;

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

    proptest! {
        #[test]
        fn no_text_panics(json in any::<Vec<u8>>()) {
            let _ = duplicates(&json);
        }
    }
}
