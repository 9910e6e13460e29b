//! Impersonation: the requested user, the permissions it needs, and the resulting user.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::auth::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
use crate::http::query;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const PREFIX: &str = "impersonate-";

/// The API group of the virtual resources `uids` and `userextras`.
const AUTHENTICATION: &str = "authentication.k8s.io";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The user that a request impersonates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Impersonation {
    user: String,
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

/// Invalid impersonation headers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImpersonationError {
    /// The user is missing.
    #[error("requested groups, a uid or extra values to impersonate without a user")]
    WithoutUser,
    /// A header is not valid text.
    #[error("the header {0} is not valid text")]
    NotText(HeaderName),
    /// There is more than one user or uid.
    #[error("the header {0} is given more than once")]
    Repeated(HeaderName),
}

impl Impersonation {
    /// Parses the impersonation headers; none if there are none.
    pub(crate) fn requested(headers: &HeaderMap) -> Result<Option<Self>, ImpersonationError> {
        let mut asked = Self::default();
        let mut any = false;
        for (name, value) in headers {
            let Some(rest) = name.as_str().strip_prefix(PREFIX) else { continue };
            match (name.as_str(), rest.strip_prefix("extra-")) {
                (USER, _) => once(&mut asked.user, name, value)?,
                (UID, _) => once(&mut asked.uid, name, value)?,
                (GROUP, _) => asked.groups.push(text(name, value)?),
                (_, Some(key)) => asked.extra.entry(decoded(key)).or_default().push(text(name, value)?),
                _ => continue,
            }
            any = true;
        }
        match (asked.user.is_empty(), any) {
            (false, _) => Ok(Some(asked)),
            // An empty user counts as none, as in kube-apiserver.
            (true, true) if asked != Self::default() => Err(ImpersonationError::WithoutUser),
            (true, _) => Ok(None),
        }
    }

    /// The permissions that the sender needs, each checked separately.
    pub(crate) fn needed(&self) -> Vec<Attributes<'_>> {
        let mut needed = vec![match service_account(&self.user) {
            Some((namespace, name)) => {
                ask(ResourceAttributes { namespace, name, ..of("", "serviceaccounts") })
            }
            None => ask(ResourceAttributes { name: &self.user, ..of("", "users") }),
        }];
        for name in &self.groups {
            needed.push(ask(ResourceAttributes { name, ..of("", "groups") }));
        }
        for (subresource, values) in &self.extra {
            for name in values {
                needed.push(ask(ResourceAttributes {
                    subresource,
                    name,
                    ..of(AUTHENTICATION, "userextras")
                }));
            }
        }
        if !self.uid.is_empty() {
            needed.push(ask(ResourceAttributes { name: &self.uid, ..of(AUTHENTICATION, "uids") }));
        }
        needed
    }

    /// The impersonated user.
    pub(crate) fn into_user(self) -> User {
        let mut groups = self.groups;
        if let (true, Some((namespace, _))) = (groups.is_empty(), service_account(&self.user)) {
            groups = vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")];
        }
        let has = |group: &str| groups.iter().any(|own| own == group);
        if self.user == ANONYMOUS {
            if !has(UNAUTHENTICATED) {
                groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !has(AUTHENTICATED) && !has(UNAUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        User { name: self.user, uid: self.uid, groups, extra: self.extra }
    }
}

/// Removes all impersonation headers and the token, so that no handler sees them.
pub(crate) fn strip(headers: &mut HeaderMap) {
    headers.remove(http::header::AUTHORIZATION);
    for name in [USER, GROUP, UID] {
        headers.remove(name);
    }
    let extra: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(EXTRA)).cloned().collect();
    for name in extra {
        headers.remove(name);
    }
}

fn of<'a>(group: &'a str, resource: &'a str) -> ResourceAttributes<'a> {
    ResourceAttributes { group, resource, ..ResourceAttributes::default() }
}

fn ask(resource: ResourceAttributes<'_>) -> Attributes<'_> {
    Attributes::of_resource("impersonate", resource)
}

fn text(name: &HeaderName, value: &HeaderValue) -> Result<String, ImpersonationError> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| ImpersonationError::NotText(name.clone()))
}

fn once(place: &mut String, name: &HeaderName, value: &HeaderValue) -> Result<(), ImpersonationError> {
    if !place.is_empty() {
        return Err(ImpersonationError::Repeated(name.clone()));
    }
    *place = text(name, value)?;
    Ok(())
}

/// Decodes a percent-encoded key of extra values; a malformed one stays as it is.
fn decoded(key: &str) -> String {
    query::decode(key).map_or_else(|| key.to_owned(), Cow::into_owned)
}

/// Whether a user name is that of a service account.
pub(crate) fn is_service_account(user: &str, namespace: &str, name: &str) -> bool {
    let rest = user.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.strip_prefix(namespace));
    rest.and_then(|rest| rest.strip_prefix(':')) == Some(name)
}

/// The namespace and name of the service account that a user name stands for, if any.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (is_label(namespace) && name.split('.').all(is_label) && name.len() <= 253).then_some((namespace, name))
}

fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    bytes.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        map
    }

    /// The needed permissions and the resulting user: `permissions => name/uid [groups] {extra}`.
    fn outcome(pairs: &[(&str, &str)]) -> String {
        match Impersonation::requested(&headers(pairs)) {
            Ok(None) => "-".to_owned(),
            Err(error) => error.to_string(),
            Ok(Some(asked)) => {
                let asks: Vec<String> = asked
                    .needed()
                    .iter()
                    .map(|attributes| {
                        let on = attributes.resource().unwrap();
                        assert_eq!(attributes.verb, "impersonate");
                        [on.group, on.resource, on.subresource, on.namespace, on.name].join("|")
                    })
                    .collect();
                let user = asked.into_user();
                let groups = user.groups.join(" ");
                format!("{} => {}/{} [{groups}] {:?}", asks.join(", "), user.name, user.uid, user.extra)
            }
        }
    }

    #[test]
    fn impersonation_headers_name_a_user() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[], "-"),
            (&[("impersonate-user", "")], "-"),
            (&[("x-remote-user", "root")], "-"),
            (&[("impersonate-user", "bob")], "|users|||bob => bob/ [system:authenticated] {}"),
            (&[("impersonate-user", "zoë")], "|users|||zoë => zoë/ [system:authenticated] {}"),
            (
                &[("Impersonate-User", "bob"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops")],
                "|users|||bob, |groups|||dev, |groups|||ops => bob/ [dev ops system:authenticated] {}",
            ),
            (
                &[("impersonate-user", "bob"), ("impersonate-group", "system:unauthenticated")],
                "|users|||bob, |groups|||system:unauthenticated => bob/ [system:unauthenticated] {}",
            ),
            (
                &[("impersonate-user", "system:anonymous")],
                "|users|||system:anonymous => system:anonymous/ [system:unauthenticated] {}",
            ),
            (
                &[("impersonate-user", "system:serviceaccount:default:ci")],
                "|serviceaccounts||default|ci => system:serviceaccount:default:ci/ \
                 [system:serviceaccounts system:serviceaccounts:default system:authenticated] {}",
            ),
            (
                &[("impersonate-user", "system:serviceaccount:default:ci"), ("impersonate-group", "g")],
                "|serviceaccounts||default|ci, |groups|||g => system:serviceaccount:default:ci/ \
                 [g system:authenticated] {}",
            ),
            (
                &[("impersonate-user", "system:serviceaccount:Default:ci")],
                "|users|||system:serviceaccount:Default:ci => system:serviceaccount:Default:ci/ \
                 [system:authenticated] {}",
            ),
            (
                &[("impersonate-user", "bob"), ("impersonate-uid", "7"), ("Impersonate-Extra-a%2Fb", "c")],
                "|users|||bob, authentication.k8s.io|userextras|a/b||c, authentication.k8s.io|uids|||7 => \
                 bob/7 [system:authenticated] {\"a/b\": [\"c\"]}",
            ),
            (
                &[("impersonate-user", "bob"), ("impersonate-extra-a%2", "c")],
                "|users|||bob, authentication.k8s.io|userextras|a%2||c => \
                 bob/ [system:authenticated] {\"a%2\": [\"c\"]}",
            ),
            (
                &[("impersonate-group", "dev")],
                "requested groups, a uid or extra values to impersonate without a user",
            ),
            (
                &[("impersonate-user", "a"), ("impersonate-user", "b")],
                "the header impersonate-user is given more than once",
            ),
        ];
        for (pairs, expected) in cases {
            assert_eq!(outcome(pairs), *expected, "{pairs:?}");
        }
    }

    #[test]
    fn impersonation_headers_are_removed() {
        let mut map = headers(&[
            ("authorization", "Bearer x"),
            ("impersonate-user", "bob"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-x", "y"),
            ("accept", "application/json"),
        ]);
        strip(&mut map);
        assert_eq!(map.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }

    proptest! {
        #[test]
        fn no_header_panics(name in "impersonate-(user|group|uid|extra-[a-z%0-9]{0,6})",
                               value in proptest::collection::vec(any::<u8>(), 0..16)) {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(&value)) {
                let mut map = HeaderMap::new();
                map.append(name, value);
                map.append("impersonate-user", HeaderValue::from_static("u"));
                if let Ok(Some(asked)) = Impersonation::requested(&map) {
                    prop_assert!(!asked.needed().is_empty());
                    prop_assert!(!asked.into_user().groups.is_empty());
                }
            }
        }
    }
}
