//! The kube-apiserver in front of this server: how it is recognised, and which user it names.
//!
//! It has authenticated its client, and passes the user on in headers. Any client can send such headers, so they count only
//! on a connection with a client certificate that is signed by the CA which kube-apiserver publishes for this purpose.

use std::collections::BTreeMap;

use http::HeaderMap;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::user::User;

/// The front proxy configuration that kube-apiserver publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontProxy {
    /// The CAs of its client certificate.
    pub authorities: Vec<CertificateDer<'static>>,
    /// The allowed common names; empty for any.
    names: Vec<String>,
    user: Vec<String>,
    uid: Vec<String>,
    groups: Vec<String>,
    extra: Vec<String>,
}

/// The published configuration is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} in the ConfigMap extension-apiserver-authentication is malformed")]
pub struct Malformed(&'static str);

const AUTHORITY: &str = "requestheader-client-ca-file";

impl FrontProxy {
    /// Reads the data of the ConfigMap `extension-apiserver-authentication`; `None` if there is no front proxy.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Option<Self>, Malformed> {
        let Some(pem) = data.get(AUTHORITY) else { return Ok(None) };
        let list = |name: &'static str| match data.get(name) {
            Some(text) => serde_json::from_str::<Vec<String>>(text).map_err(|_| Malformed(name)),
            None => Ok(Vec::new()),
        };
        let lower = |names: Vec<String>| names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        Ok(Some(Self {
            authorities: authorities.map_err(|_| Malformed(AUTHORITY))?,
            names: list("requestheader-allowed-names")?,
            user: lower(list("requestheader-username-headers")?),
            uid: lower(list("requestheader-uid-headers")?),
            groups: lower(list("requestheader-group-headers")?),
            extra: lower(list("requestheader-extra-headers-prefix")?),
        }))
    }

    /// Whether a verified client certificate is the front proxy's.
    pub fn has(&self, certificate: &CertificateDer<'_>) -> bool {
        let name = common_name(certificate);
        self.names.is_empty() || name.is_some_and(|name| self.names.contains(&name))
    }

    /// The user that the headers name.
    pub fn user(&self, headers: &HeaderMap) -> Option<User> {
        let values = |names: &[String]| -> Vec<String> {
            let all = names.iter().flat_map(|name| headers.get_all(name.as_str()));
            all.filter_map(|value| value.to_str().ok())
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in headers {
            let key = self.extra.iter().find_map(|prefix| name.as_str().strip_prefix(prefix.as_str()));
            if let (Some(key), Ok(value)) = (key, value.to_str()) {
                extra.entry(unescaped(key)).or_default().push(value.to_owned());
            }
        }
        Some(User {
            name: values(&self.user).into_iter().next()?,
            uid: values(&self.uid).into_iter().next(),
            groups: values(&self.groups),
            extra,
        })
    }
}

fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?;
    Some(name.to_owned())
}

/// Decodes the key of an extra header, which is percent-encoded.
fn unescaped(key: &str) -> String {
    // A plus is not a space here, unlike in a form.
    let form = format!("{}=", key.replace('+', "%2B"));
    form_urlencoded::parse(form.as_bytes()).next().map_or_else(|| key.to_owned(), |(key, _)| key.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(name: &str) -> (CertificateDer<'static>, String) {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        (made.der().clone(), made.pem())
    }

    fn published(names: &str) -> BTreeMap<String, String> {
        [
            (AUTHORITY, certificate("ca").1.as_str()),
            ("requestheader-allowed-names", names),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    #[test]
    fn only_allowed_common_names_are_the_front_proxy() {
        for (names, name, expected) in [
            (r#"["front"]"#, "front", true),
            (r#"["front"]"#, "kubelet", false),
            (r#"["front","other"]"#, "other", true),
            ("[]", "anybody", true),
        ] {
            let proxy = FrontProxy::read(&published(names)).unwrap().unwrap();
            assert_eq!(proxy.has(&certificate(name).0), expected, "{names} {name}");
            assert!(names == "[]" || !proxy.has(&CertificateDer::from(vec![1, 2, 3])));
        }
    }

    #[test]
    fn a_missing_or_malformed_configuration_is_noticed() {
        assert_eq!(FrontProxy::read(&BTreeMap::new()), Ok(None));
        let wrong = FrontProxy::read(&published("front"));
        assert_eq!(wrong, Err(Malformed("requestheader-allowed-names")));
    }

    #[test]
    fn the_headers_name_the_user() {
        let proxy = FrontProxy::read(&published("[]")).unwrap().unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(proxy.user(&headers), None);
        for (name, value) in [
            ("x-remote-user", "alice"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-scopes%2fone", "x"),
            ("x-forwarded-for", "1.2.3.4"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let user = proxy.user(&headers).unwrap();
        assert_eq!((user.name.as_str(), user.groups), ("alice", vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(user.extra, [("scopes/one".to_owned(), vec!["x".to_owned()])].into());
    }
}
