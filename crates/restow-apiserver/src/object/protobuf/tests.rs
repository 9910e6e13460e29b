//! Bodies as clients in Go send them.

use super::*;

/// A field of bytes.
fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    let mut field = vec![number << 3 | 2, content.len() as u8];
    field.extend_from_slice(content);
    field
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let types = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC, &bytes(1, &types), &bytes(2, raw), &bytes(3, b""), &bytes(4, b"")].concat()
}

#[test]
fn a_config_map_is_decoded_from_protobuf() {
    // Empty texts and a zero generation are what Go writes of fields that were not set.
    let metadata =
        [bytes(1, b"a"), bytes(2, b""), bytes(3, b"default"), vec![7 << 3, 0], bytes(8, b"")].concat();
    let pair = [bytes(1, b"x"), bytes(2, b"y")].concat();
    let binary = [bytes(1, b"b"), bytes(2, &[0, 255])].concat();
    let raw = [bytes(1, &metadata), bytes(2, &pair), bytes(3, &binary), vec![4 << 3, 0]].concat();
    let expected = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"},
        "data": {"x": "y"}, "binaryData": {"b": "AP8="}, "immutable": false,
    });
    assert_eq!(decode(&envelope("v1", "ConfigMap", &raw)), Ok(expected));
}

#[test]
fn times_quantities_and_the_like_become_their_json_form() {
    // A time, a number or text, and fields that stand in the place of their message.
    let time = [vec![1 << 3, 0x80, 0xa3, 0x05], vec![2 << 3, 0]].concat();
    let metadata = bytes(8, &time);
    let port = [bytes(1, b"p"), bytes(4, &[1 << 3, 0, 2 << 3, 80])].concat();
    let spec = bytes(1, &port);
    let raw = [bytes(1, &metadata), bytes(2, &spec)].concat();
    let service = decode(&envelope("v1", "Service", &raw)).unwrap_or_default();
    assert_eq!(service["metadata"]["creationTimestamp"], "1970-01-02T00:00:00Z");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 80);
}

#[test]
fn unknown_kinds_and_malformed_bytes_are_refused() {
    for body in [
        &b""[..],
        b"{}",
        b"k8s\0",
        b"k8s\0\xff",
        &envelope("v1", "Widget", b""),
        &envelope("v1", "Pod", b"\x0a\x7f"),
    ] {
        assert_eq!(decode(body).map_err(|failure| failure.code()), Err(400), "{body:?}");
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(raw: Vec<u8>) {
        let _ = decode(&envelope("v1", "Pod", &raw[..raw.len().min(120)]));
        let _ = decode(&[MAGIC, &raw].concat());
    }
}
