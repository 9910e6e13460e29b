//! Finds `apiVersion` and `kind` in JSON.

use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};

/// The `apiVersion` and `kind` of an object. All of it must be JSON; as in kube-apiserver, the last one of a name counts.
pub(super) fn decode(bytes: &[u8]) -> Result<(String, String), &'static str> {
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err("it is neither JSON, CBOR nor protobuf");
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let found = json.deserialize_map(Object).map_err(|_| "it is not valid JSON")?;
    json.end().map_err(|_| "it is not valid JSON")?;
    match found {
        (Some(api_version), Some(kind)) => Ok((api_version, kind)),
        (None, _) => Err("it has no apiVersion"),
        (_, None) => Err("it has no kind"),
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = (Option<String>, Option<String>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut api_version, mut kind) = (None, None);
        while let Some(name) = map.next_key::<Name>()? {
            match name {
                Name::ApiVersion => api_version = Some(map.next_value()?),
                Name::Kind => kind = Some(map.next_value()?),
                Name::Other => map.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok((api_version, kind))
    }
}

/// The name of a field, which is not copied.
enum Name {
    ApiVersion,
    Kind,
    Other,
}

impl<'de> serde::Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl Visitor<'_> for Names {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                Ok(match name {
                    "apiVersion" => Name::ApiVersion,
                    "kind" => Name::Kind,
                    _ => Name::Other,
                })
            }
        }
        deserializer.deserialize_str(Names)
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn the_type_is_found_at_the_top_only() {
        let deep =
            format!(r#"{{"a":{}{},"kind":"A","apiVersion":"v1"}}"#, "[".repeat(5000), "]".repeat(5000));
        for (json, expected) in [
            (r#"{"apiVersion":"v1","kind":"A"}"#, Ok(("v1", "A"))),
            (" {\"spec\":{\"kind\":\"B\"},\n\"kind\":\"A\",\"apiVersion\":\"v1\"}\n", Ok(("v1", "A"))),
            (r#"{"apiVersion":"v1","kind":"A","apiVersion":"v2"}"#, Ok(("v2", "A"))),
            (r#"{"\u0061piVersion":"v1","kind":"A"}"#, Ok(("v1", "A"))),
            (&deep, Ok(("v1", "A"))),
            (r#"{"spec":{"apiVersion":"v1"},"kind":"A"}"#, Err("it has no apiVersion")),
            (r#"{"apiVersion":"v1"}"#, Err("it has no kind")),
            (r#"{"apiVersion":1,"kind":"A"}"#, Err("it is not valid JSON")),
            (r#"{"apiVersion":"v1","kind":"A""#, Err("it is not valid JSON")),
            (r#"{"apiVersion":"v1","kind":"A"}}"#, Err("it is not valid JSON")),
            (r#"["apiVersion"]"#, Err("it is neither JSON, CBOR nor protobuf")),
        ] {
            let expected = expected.map(|(version, kind)| (version.to_owned(), kind.to_owned()));
            assert_eq!(decode(json.as_bytes()), expected, "{}", &json[..json.len().min(60)]);
        }
    }
}
