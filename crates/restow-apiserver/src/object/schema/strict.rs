//! Duplicate fields in JSON, for strict field validation.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::object::path::{Path, Paths};

/// The paths of duplicate fields.
pub(crate) fn duplicates(json: &[u8]) -> Vec<String> {
    let mut found = Paths::default();
    let mut reader = serde_json::Deserializer::from_slice(json);
    // Malformed JSON is refused elsewhere.
    let _ = DuplicateFinder { path: Path::default(), found: &mut found }.deserialize(&mut reader);
    found.into_vec()
}

struct DuplicateFinder<'p, 'f> {
    path: Path<'p>,
    found: &'f mut Paths,
}

impl<'de> DeserializeSeed<'de> for DuplicateFinder<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateFinder<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = self.path.field(&key);
            if seen.contains(&key) {
                self.found.push(&path);
            }
            map.next_value_seed(DuplicateFinder { path, found: self.found })?;
            seen.insert(key);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(()) =
            seq.next_element_seed(DuplicateFinder { path: self.path.item(index), found: self.found })?
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
    fn duplicate_fields_are_found() {
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
    fn many_fields_below_a_long_key_are_read_in_linear_time() {
        let key = "k".repeat(1_500_000);
        let twice: Vec<String> = (0..100_000).map(|n| format!("\"{n}\":1,\"{n}\":1")).collect();
        let start = restow_clock::Instant::now();
        let found = duplicates(format!("{{\"{key}\":{{{}}}}}", twice.join(",")).as_bytes());
        assert!(!found.is_empty() && found.len() <= 1000, "{}", found.len());
        assert!(found.iter().map(String::len).sum::<usize>() < 1_000_000);
        let list = format!("{{\"{key}\":[{}0]}}", "0,".repeat(700_000));
        assert_eq!(duplicates(list.as_bytes()), Vec::<String>::new());
        assert!(start.elapsed() < std::time::Duration::from_secs(30), "{:?}", start.elapsed());
    }

    proptest! {
        #[test]
        fn no_text_panics(json in any::<Vec<u8>>()) {
            let _ = duplicates(&json);
        }
    }
}
