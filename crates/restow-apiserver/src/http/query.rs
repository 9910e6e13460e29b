//! The query of a request, and percent-encoding.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The decoded pairs of a query, in order. Pairs that cannot be decoded are left out, as Go does.
pub(crate) fn pairs(query: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| decode(&text.replace('+', " ")).map(Cow::into_owned);
    let pair = |text: &str| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        Some((decoded(key)?, decoded(value)?))
    };
    query.split('&').filter(|text| !text.is_empty()).filter_map(pair).collect()
}

/// Decodes a percent-encoded text; none if it is malformed or not UTF-8.
pub(crate) fn decode(text: &str) -> Option<Cow<'_, str>> {
    // The crate leaves a malformed sequence as it is, where Go refuses it.
    let is_sequence = |rest: &[u8]| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit);
    let is_well_formed = text.as_bytes().split(|byte| *byte == b'%').skip(1).all(is_sequence);
    if is_well_formed { percent_decode_str(text).decode_utf8().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_and_malformed_ones_left_out() {
        let expected = [("labelSelector", "a=b"), ("watch", ""), ("x", "1 2"), ("y", "+")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(pairs("labelSelector=a%3Db&watch&x=1+2&&bad=%zz&y=%2B&worse=%ff&end=%4"), expected);
    }
}
