//! What a stored value says about itself: the version of its object, and the key that it is encrypted with.
//!
//! Nothing here keeps, prints or returns the content of an object.

mod cbor;
mod encryption;
mod json;
mod protobuf;

pub use encryption::Encryption;

/// The self-described tag with which kube-apiserver begins CBOR.
const CBOR: &[u8] = b"\xd9\xd9\xf7";
/// The prefix with which kube-apiserver begins protobuf.
const PROTOBUF: &[u8] = b"k8s\0";
/// The longest `apiVersion`: a group of 253 characters, a slash and a version of 63.
const MAX_VERSION: usize = 317;

/// The type that an object says it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Such as `example.com/v1`.
    pub api_version: String,
    /// Such as `Widget`.
    pub kind: String,
}

/// The type of an object in JSON, CBOR or protobuf; otherwise why it cannot be decoded.
pub fn decode(plain: &[u8]) -> Result<Type, &'static str> {
    let (api_version, kind) = match plain {
        [] => return Err("it is empty"),
        plain if plain.starts_with(CBOR) => cbor::decode(&plain[CBOR.len()..])?,
        plain if plain.starts_with(PROTOBUF) => protobuf::decode(&plain[PROTOBUF.len()..])?,
        plain => json::decode(plain)?,
    };
    // Anything else might be data of the object, which must not be shown.
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_api_version(&api_version) {
        return Err("its apiVersion is not a group and a version");
    }
    if !is_name(&kind) || kind.len() > 63 {
        return Err("its kind is not a name");
    }
    Ok(Type { api_version, kind })
}

/// Whether this is a version, alone or after a group.
pub(crate) fn is_api_version(text: &str) -> bool {
    let (group, version) = text.split_once('/').unwrap_or(("", text));
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let group_is_ok = group.bytes().all(|byte| lower(byte) || byte == b'-' || byte == b'.');
    let has_group = !text.contains('/') || !group.is_empty();
    let version_is_ok = version.starts_with(|first: char| first.is_ascii_lowercase())
        && version.bytes().all(|byte| lower(byte) || byte == b'-');
    text.len() <= MAX_VERSION && version.len() <= 63 && has_group && group_is_ok && version_is_ok
}

#[cfg(test)]
mod tests {
    use super::{Type, decode, is_api_version};

    fn found(api_version: &str, kind: &str) -> Result<Type, &'static str> {
        Ok(Type { api_version: api_version.to_owned(), kind: kind.to_owned() })
    }

    #[test]
    fn the_type_is_found_in_each_encoding() {
        for (value, expected) in [
            (
                &br#"{"kind":"Widget","apiVersion":"example.com/v1","spec":{}}"#[..],
                found("example.com/v1", "Widget"),
            ),
            (b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x01x\x1a\0\x22\0", found("v1", "ConfigMap")),
            (b"\xd9\xd9\xf7\xa2\x4aapiVersion\x42v1\x44kind\x43Pod", found("v1", "Pod")),
            (b"", Err("it is empty")),
            (b"garbage", Err("it is neither JSON, CBOR nor protobuf")),
            (
                br#"{"apiVersion":"s3cret password","kind":"X"}"#,
                Err("its apiVersion is not a group and a version"),
            ),
            (br#"{"apiVersion":"v1","kind":"s3cret password"}"#, Err("its kind is not a name")),
        ] {
            assert_eq!(decode(value), expected, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn an_api_version_has_a_version_and_perhaps_a_group() {
        for text in ["v1", "apps/v1", "example.com/v1beta1", "a.b-c.d/foo10"] {
            assert!(is_api_version(text), "{text}");
        }
        for text in ["", "/v1", "apps/", "a/b/v1", "Apps/v1", "v 1", "apps/1", "v1\n", &"v".repeat(64)] {
            assert!(!is_api_version(text), "{text}");
        }
    }
}
