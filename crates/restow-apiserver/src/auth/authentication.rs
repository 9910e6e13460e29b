//! Who sends a request: bearer tokens, and nobody in particular.

mod impersonation;
mod token_file;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};

pub(crate) use impersonation::is_service_account;
pub use impersonation::{Impersonation, ImpersonationError, strip};
pub use token_file::TokenFileError;

/// Members of this group may do everything.
pub const MASTERS: &str = "system:masters";
/// Everybody who has shown who they are is in this group.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Everybody else is in this one.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of those who have not shown who they are.
pub const ANONYMOUS: &str = "system:anonymous";

/// Somebody who sends requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// What tells apart two users of one name.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Somebody who has shown who they are.
    pub fn known(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// Somebody who has not.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// The user whose token is in the kubeconfig that the server writes.
    pub fn admin() -> Self {
        Self::known("restow:admin", [MASTERS])
    }

    /// The server itself.
    pub fn loopback() -> Arc<Self> {
        static LOOPBACK: LazyLock<Arc<User>> =
            LazyLock::new(|| Arc::new(User::known("system:apiserver", [MASTERS])));
        Arc::clone(&LOOPBACK)
    }

    /// Whether everything is allowed.
    pub fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// Whether it is one of a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// A token was given, and it is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token is not known")]
pub struct UnknownToken;

/// Whose token is whose.
///
/// Only hashes are kept and compared, so that the time a look-up takes tells nothing of a token.
#[derive(Clone, Default)]
pub struct Tokens(HashMap<[u8; 32], Arc<User>>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tokens").field(&self.0.len()).finish()
    }
}

impl Tokens {
    /// Gives a user a token; an empty one is none.
    pub fn insert(&mut self, token: &str, user: User) {
        if !token.is_empty() {
            self.0.insert(hash(token), Arc::new(user));
        }
    }

    /// Takes the users of a token file of kube-apiserver: `token,user,uid,"group1,group2"`.
    pub fn insert_file(&mut self, text: &str) -> Result<(), TokenFileError> {
        for (token, user) in token_file::parse(text)? {
            self.insert(&token, user);
        }
        Ok(())
    }

    /// Whose token this is.
    pub fn user(&self, token: &str) -> Option<Arc<User>> {
        self.0.get(&hash(token)).cloned()
    }

    /// Who sends a request with these headers.
    ///
    /// No token is anonymous; a token that is nobody's is refused, and so is more than one.
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
    fn a_request_is_its_tokens() {
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
    fn tokens_are_not_shown() {
        assert_eq!(format!("{:?}", tokens()), "Tokens(2)");
    }
}
