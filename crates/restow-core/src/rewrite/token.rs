//! Continue tokens of kube-apiserver's lists: where the next page starts, and at which resourceVersion.
//!
//! Tokens of other servers are passed on unchanged; they cannot be created or moved.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

const FORM: &str = "meta.k8s.io/v1";

/// The resourceVersion of a token that continues at the newest state.
pub const NEWEST: i64 = -1;

/// A decoded continue token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The resourceVersion of the list, or [`NEWEST`].
    pub resource_version: i64,
    /// The first key of the next page, below the resource's prefix: `namespace/name`.
    pub start: String,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: String,
    rv: i64,
    #[serde(default)]
    start: String,
}

impl Token {
    /// Decodes a token; `None` if it does not have kube-apiserver's form.
    pub fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        let wire: Wire = serde_json::from_slice(&bytes).ok()?;
        (wire.v == FORM && !wire.start.is_empty())
            .then(|| Self { resource_version: wire.rv, start: wire.start.trim_start_matches('/').to_owned() })
    }

    /// Encodes the token for a request.
    pub fn encode(&self) -> String {
        let wire = Wire { v: FORM.to_owned(), rv: self.resource_version, start: self.start.clone() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    /// A token that starts right after `key`.
    pub fn behind(key: &str, resource_version: i64) -> Self {
        Self { resource_version, start: format!("{key}\0") }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tokens a kube-apiserver 1.36.3 gave: from its cache, and from etcd.
    #[test]
    fn tokens_of_a_real_server_are_decoded() {
        for text in [
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjM4LCJzdGFydCI6Ii9kZWZhdWx0L3ctMDJcdTAwMDAifQ",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjM4LCJzdGFydCI6ImRlZmF1bHQvdy0wMlx1MDAwMCJ9",
        ] {
            assert_eq!(Token::decode(text), Some(Token::behind("default/w-02", 238)));
        }
    }

    #[test]
    fn tokens_of_another_form_are_not_decoded() {
        for text in ["", "!!", "bm90IGpzb24", "eyJ2IjoieCIsInJ2IjoxLCJzdGFydCI6ImEifQ", "eyJwYWdlIjoyfQ"] {
            assert_eq!(Token::decode(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_token_round_trips(resource_version in -1i64.., start in "[a-z0-9./:-]{1,60}\0?") {
            let token = Token { resource_version, start: start.trim_start_matches('/').to_owned() };
            prop_assume!(!token.start.is_empty());
            prop_assert_eq!(Token::decode(&token.encode()), Some(token));
        }

        #[test]
        fn decoding_a_token_never_panics(text in ".{0,80}") {
            let _ = Token::decode(&text);
        }
    }
}
