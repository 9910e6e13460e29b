//! Authentication by bearer token.

mod token_file;

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};

use crate::auth::user::User;
pub(crate) use token_file::TokenFileError;

/// A request has a token that no user has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown token")]
pub struct UnknownToken;

/// The tokens of users.
///
/// Only hashes are stored and compared, so that the time of a lookup reveals nothing about a token.
#[derive(Clone, Default)]
pub struct Tokens(HashMap<[u8; 32], Arc<User>>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tokens").field(&self.0.len()).finish()
    }
}

impl Tokens {
    /// Adds a token of a user. An empty token is ignored.
    pub fn insert(&mut self, token: &str, user: User) {
        if !token.is_empty() {
            self.0.insert(hash(token), Arc::new(user));
        }
    }

    /// Adds the users of a token file as kube-apiserver reads it: `token,user,uid,"group1,group2"`.
    pub fn insert_file(&mut self, text: &str) -> Result<(), TokenFileError> {
        for (token, user) in token_file::parse(text)? {
            self.insert(&token, user);
        }
        Ok(())
    }

    /// The user of a token.
    pub fn user(&self, token: &str) -> Option<Arc<User>> {
        self.0.get(&hash(token)).cloned()
    }

    /// The user who sends a request with these headers.
    ///
    /// A request without a token is anonymous. An unknown token is refused, and so are several tokens.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<User>, UnknownToken> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (first, second) = (given.next(), given.next());
        if second.is_some() {
            return Err(UnknownToken);
        }
        let text = first.map(|value| value.to_str().map_err(|_| UnknownToken)).transpose()?;
        match text.and_then(bearer) {
            Some(token) => self.user(token).ok_or(UnknownToken),
            None => Ok(Arc::new(User::anonymous())),
        }
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn bearer(text: &str) -> Option<&str> {
    let (scheme, rest) = text.trim().split_once(' ')?;
    let token = rest.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn tokens() -> Tokens {
        let mut tokens = Tokens::default();
        tokens.insert("secret", User::admin());
        tokens.insert("", User::admin());
        tokens.insert_file("t1,alice,1,\"dev,ops\"\n").unwrap();
        tokens
    }

    fn who(headers: &[&[u8]]) -> String {
        let mut map = HeaderMap::new();
        for value in headers {
            map.append(header::AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        }
        match tokens().authenticate(&map) {
            Ok(user) => format!("{} [{}]", user.name, user.groups.join(" ")),
            Err(UnknownToken) => "401".to_owned(),
        }
    }

    #[test]
    fn a_bearer_token_identifies_its_user() {
        let nobody = "system:anonymous [system:unauthenticated]";
        let admin = "restow:admin [system:masters system:authenticated]";
        let alice = "alice [dev ops system:authenticated]";
        for (headers, expected) in [
            (&[][..], nobody),
            (&[b"Bearer secret".as_slice()][..], admin),
            (&[b"bearer secret"], admin),
            (&[b"  BEARER secret more"], admin),
            (&[b"Bearer t1"], alice),
            (&[b"Bearer t2"], "401"),
            (&[b"Bearer secre"], "401"),
            (&[b"Bearer secret\xff"], "401"),
            (&[b"Bearer secret", b"Bearer secret"], "401"),
            (&[b"Bearer"], nobody),
            (&[b"Bearer "], nobody),
            (&[b"Bearer  secret"], nobody),
            (&[b"Basic c2VjcmV0"], nobody),
            (&[b""], nobody),
        ] {
            assert_eq!(who(headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn debug_output_of_tokens_shows_no_token() {
        assert_eq!(format!("{:?}", tokens()), "Tokens(2)");
    }
}
