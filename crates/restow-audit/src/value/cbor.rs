//! Finds `apiVersion` and `kind` in CBOR.

const BROKEN: &str = "it is not valid CBOR";
/// As deep as kube-apiserver reads.
const MAX_DEPTH: u32 = 64;

/// The `apiVersion` and `kind` of an object. All of it must be CBOR.
pub(super) fn decode(bytes: &[u8]) -> Result<(String, String), &'static str> {
    let mut reader = Reader { rest: bytes };
    let (mut api_version, mut kind) = (None, None);
    let head = reader.head().ok_or(BROKEN)?;
    if head.major != MAP {
        return Err("it is CBOR and not an object");
    }
    let mut left = head.value;
    while reader.has_more(&mut left).ok_or(BROKEN)? {
        let name = reader.text().ok_or(BROKEN)?;
        match name {
            b"apiVersion" => api_version = Some(reader.text().ok_or(BROKEN)?),
            b"kind" => kind = Some(reader.text().ok_or(BROKEN)?),
            _ => reader.skip(MAX_DEPTH).ok_or(BROKEN)?,
        }
    }
    if !reader.rest.is_empty() {
        return Err(BROKEN);
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| BROKEN);
    match (api_version, kind) {
        (Some(api_version), Some(kind)) => Ok((text(api_version)?, text(kind)?)),
        (None, _) => Err("it has no apiVersion"),
        (_, None) => Err("it has no kind"),
    }
}

const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;
const BREAK: u8 = 0xff;

struct Reader<'b> {
    rest: &'b [u8],
}

/// The beginning of an item: its major type, and its value or length; `None` if the length follows from a break.
struct Head {
    major: u8,
    value: Option<u64>,
}

impl<'b> Reader<'b> {
    fn take(&mut self, length: u64) -> Option<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    fn head(&mut self) -> Option<Head> {
        let first = *self.take(1)?.first()?;
        let (major, info) = (first >> 5, first & 0x1f);
        let value = match info {
            0..=23 => Some(u64::from(info)),
            24..=27 => {
                let bytes = self.take(1 << (info - 24))?;
                Some(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
            }
            31 if (BYTES..=MAP).contains(&major) => None,
            _ => return None,
        };
        Some(Head { major, value })
    }

    /// Whether another item follows in an array or a map.
    fn has_more(&mut self, left: &mut Option<u64>) -> Option<bool> {
        match left {
            Some(0) => Some(false),
            Some(left) => {
                *left -= 1;
                Some(true)
            }
            None if self.rest.first()? == &BREAK => {
                self.take(1)?;
                Some(false)
            }
            None => Some(true),
        }
    }

    /// A string in one piece; kube-apiserver writes byte strings and reads both.
    fn text(&mut self) -> Option<&'b [u8]> {
        match self.head()? {
            Head { major: BYTES | TEXT, value: Some(length) } => self.take(length),
            _ => None,
        }
    }

    fn skip(&mut self, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let Head { major, value: mut left } = self.head()?;
        match major {
            BYTES | TEXT => match left {
                Some(length) => self.take(length).map(drop),
                None => {
                    while self.has_more(&mut left)? {
                        let piece = self.head().filter(|piece| piece.major == major)?;
                        self.take(piece.value?)?;
                    }
                    Some(())
                }
            },
            ARRAY | MAP => {
                while self.has_more(&mut left)? {
                    self.skip(depth)?;
                    if major == MAP {
                        self.skip(depth)?;
                    }
                }
                Some(())
            }
            TAG => self.skip(depth),
            // Numbers and simple values have no content.
            _ => Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::decode;

    #[test]
    fn the_type_is_found_whatever_surrounds_it() {
        let pod = Ok(("v1".to_owned(), "Pod".to_owned()));
        let broken = Err("it is not valid CBOR");
        for (cbor, expected) in [
            (&b"\xa2\x4aapiVersion\x42v1\x44kind\x43Pod"[..], pod.clone()),
            (b"\xa2\x6aapiVersion\x62v1\x64kind\x63Pod", pod.clone()),
            (b"\xa3\x44spec\xa1\x44kind\x41x\x4aapiVersion\x42v1\x44kind\x43Pod", pod.clone()),
            (b"\xbf\x44list\x9f\x01\x20\xf6\xfb\0\0\0\0\0\0\0\0\xff\x4aapiVersion\x42v1\x44kind\x43Pod\xff", pod.clone()),
            (b"\xa3\x41a\xc0\x5f\x41x\x41y\xff\x4aapiVersion\x42v1\x44kind\x43Pod", pod),
            (b"\xa2\x4aapiVersion\x42v1\x44kind\x43Po", broken.clone()),
            (b"\xa2\x4aapiVersion\x42v1\x44kind\x43Pod\0", broken.clone()),
            (b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff\x44kind\x43Pod", broken.clone()),
            (b"\xa1\x41a\x5b\xff\xff\xff\xff\xff\xff\xff\xff", broken.clone()),
            (b"\x81\x01", Err("it is CBOR and not an object")),
            (b"\xa1\x44kind\x43Pod", Err("it has no apiVersion")),
            (&[&b"\xa1\x41a"[..], &[0x81; 100_000]].concat(), broken),
        ] {
            assert_eq!(decode(cbor), expected, "{}", cbor[..cbor.len().min(40)].escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_object_or_an_error(bytes: Vec<u8>) {
            decode(&bytes).ok();
        }
    }
}
