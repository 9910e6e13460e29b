//! Finds `apiVersion` and `kind` in the envelope that kube-apiserver puts around protobuf.

use crate::wire::{Field, Fields};

/// The `apiVersion` and `kind` in a `runtime.Unknown`.
pub(super) fn decode(envelope: &[u8]) -> Result<(String, String), &'static str> {
    const BROKEN: &str = "its protobuf envelope is damaged";
    let mut found: Option<&[u8]> = None;
    for field in Fields::new(envelope) {
        match field.ok_or(BROKEN)? {
            (1, Field::Bytes(message)) => found = Some(message),
            // The object, its encoding and its content type.
            (2..=4, Field::Bytes(_)) => {}
            _ => return Err(BROKEN),
        }
    }
    let mut texts = [None, None];
    for field in Fields::new(found.ok_or("it has no apiVersion")?) {
        match field.ok_or(BROKEN)? {
            (number @ (1 | 2), Field::Bytes(text)) => {
                let text = str::from_utf8(text).map_err(|_| BROKEN)?;
                texts[usize::from(number == 2)] = Some(text.to_owned());
            }
            _ => return Err(BROKEN),
        }
    }
    match texts {
        [Some(api_version), Some(kind)] => Ok((api_version, kind)),
        [None, _] => Err("it has no apiVersion"),
        [_, None] => Err("it has no kind"),
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn a_damaged_envelope_is_refused() {
        let broken = Err("its protobuf envelope is damaged");
        for (envelope, expected) in [
            (&b"\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x02\xff\xff"[..], Ok(("v1".to_owned(), "Pod".to_owned()))),
            (b"\x12\x02xx", Err("it has no apiVersion")),
            (b"\x0a\x04\x0a\x02v1", Err("it has no kind")),
            (b"\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x09xx", broken.clone()),
            (b"\x0a\x09\x0a\x02v1\x12\x03Pod\x2a\x01x", broken.clone()),
            (b"\x0a\x09\x0a\x02\xff1\x12\x03Pod", broken),
        ] {
            assert_eq!(decode(envelope), expected, "{}", envelope.escape_ascii());
        }
    }
}
