//! Finds the uid of the namespace `kube-system`, which names a cluster.

use serde::Deserialize;

use crate::wire::{Field, Fields};

/// The key of the namespace below the prefix.
pub(crate) const KEY: &str = "namespaces/kube-system";

/// The uid in a stored namespace.
pub(crate) fn uid(plain: &[u8]) -> Option<String> {
    let uid = match plain.strip_prefix(b"k8s\0") {
        // The object in its envelope, its metadata, its uid.
        Some(envelope) => String::from_utf8(bytes(bytes(bytes(envelope, 2)?, 1)?, 5)?.to_vec()).ok()?,
        None => {
            #[derive(Deserialize)]
            struct Object {
                metadata: Metadata,
            }
            #[derive(Deserialize)]
            struct Metadata {
                uid: String,
            }
            serde_json::from_slice::<Object>(plain).ok()?.metadata.uid
        }
    };
    let is_uid = uid.len() == 36 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_uid.then_some(uid)
}

/// The last field of this number.
fn bytes(message: &[u8], number: u64) -> Option<&[u8]> {
    let mut found = None;
    for field in Fields::new(message) {
        match field? {
            (at, Field::Bytes(bytes)) if at == number => found = Some(bytes),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::uid;

    #[test]
    fn the_uid_is_found_in_both_encodings() {
        let id = "0f3ba4a4-1d2c-4b7a-9f0e-6b1f2a3c4d5e";
        let json = format!(r#"{{"metadata":{{"name":"kube-system","uid":"{id}"}}}}"#);
        let metadata = [&b"\x0a\x0bkube-system\x2a\x24"[..], id.as_bytes()].concat();
        let namespace = [&[0x0a, metadata.len() as u8], &metadata[..]].concat();
        let protobuf = [b"k8s\0\x0a\0\x12", &[namespace.len() as u8][..], &namespace].concat();
        for (value, expected) in [
            (json.as_bytes(), Some(id)),
            (&protobuf, Some(id)),
            (&protobuf[..20], None),
            (br#"{"metadata":{"uid":"some secret"}}"#, None),
            (b"garbage", None),
        ] {
            assert_eq!(uid(value).as_deref(), expected, "{}", value.escape_ascii());
        }
    }
}
