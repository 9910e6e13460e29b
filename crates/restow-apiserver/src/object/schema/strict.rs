//! Fields that are given twice, for those who ask to be told.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::child;

/// The paths of fields that a JSON text gives twice.
pub fn duplicates(json: &[u8]) -> Vec<String> {
    let mut found = Found::default();
    let mut reader = serde_json::Deserializer::from_slice(json);
    // What is no JSON is refused elsewhere.
    let _ = Seeker { path: String::new(), found: &mut found }.deserialize(&mut reader);
    found.paths
}

/// Paths in the order in which they were found, each once.
#[derive(Default)]
struct Found {
    paths: Vec<String>,
    seen: HashSet<String>,
}

struct Seeker<'a> {
    path: String,
    found: &'a mut Found,
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
            if !seen.insert(key) && self.found.seen.insert(path.clone()) {
                self.found.paths.push(path.clone());
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
    fn many_fields_given_twice_are_found_in_linear_time() {
        let fields: Vec<String> = (0..100_000).map(|n| format!("\"{n}\":1,\"{n}\":1")).collect();
        let start = restow_clock::Instant::now();
        assert_eq!(duplicates(format!("{{{}}}", fields.join(",")).as_bytes()).len(), 100_000);
        assert!(start.elapsed() < std::time::Duration::from_secs(30), "{:?}", start.elapsed());
    }

    proptest! {
        #[test]
        fn no_text_panics(json in any::<Vec<u8>>()) {
            let _ = duplicates(&json);
        }
    }
}
