//! Where API servers call the webhook: a Service in the cluster, or a URL.

use std::collections::BTreeSet;
use std::fmt;

use http::Uri;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use serde_json::{Value, json};

/// The port of a Service that a client configuration means if it names none.
const DEFAULT_PORT: u16 = 443;

/// Where API servers call the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Service.
    Service {
        /// The namespace of the Service.
        namespace: String,
        /// The name of the Service.
        name: String,
        /// The port of the Service.
        port: u16,
        /// The path that reviews are sent to; group and kind of a CRD follow it.
        path: String,
    },
    /// A URL with https, for a webhook outside the cluster; group and kind of a CRD follow its path.
    Url(Uri),
}

/// The URL of a webhook cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// It is no URL.
    #[error("{0} is not a URL")]
    NotAUrl(String),
    /// It has another scheme than https, or no host.
    #[error("{0} must begin with https:// and have a host")]
    NotHttps(String),
}

impl Endpoint {
    /// The endpoint of a URL.
    ///
    /// # Errors
    /// When an API server would refuse the URL.
    pub fn url(text: &str) -> Result<Self, InvalidUrl> {
        let uri: Uri = text.parse().map_err(|_| InvalidUrl::NotAUrl(text.to_owned()))?;
        if uri.scheme_str() != Some("https") || uri.host().is_none() {
            return Err(InvalidUrl::NotHttps(text.to_owned()));
        }
        Ok(Self::Url(uri))
    }

    /// The endpoint of a client configuration; none if it has neither a Service nor a URL that can be used.
    pub(crate) fn of(config: &WebhookClientConfig) -> Option<Self> {
        match (&config.service, &config.url) {
            (Some(service), _) => Some(Self::Service {
                namespace: service.namespace.clone(),
                name: service.name.clone(),
                port: service.port.and_then(|port| u16::try_from(port).ok()).unwrap_or(DEFAULT_PORT),
                path: service.path.clone().unwrap_or_default(),
            }),
            (None, Some(url)) => Self::url(url).ok(),
            (None, None) => None,
        }
    }

    /// The names that the certificate must be valid for.
    pub fn names(&self) -> BTreeSet<String> {
        match self {
            Self::Service { namespace, name, .. } => BTreeSet::from([
                format!("{name}.{namespace}.svc"),
                format!("{name}.{namespace}"),
                name.clone(),
            ]),
            Self::Url(_) => BTreeSet::from([self.host()]),
        }
    }

    /// The name that API servers verify.
    pub fn host(&self) -> String {
        match self {
            Self::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
            Self::Url(uri) => uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
        }
    }

    /// The port that is called.
    pub fn port(&self) -> u16 {
        match self {
            Self::Service { port, .. } => *port,
            Self::Url(uri) => uri.port_u16().unwrap_or(DEFAULT_PORT),
        }
    }

    /// The path that reviews are sent to.
    pub fn path(&self) -> &str {
        match self {
            Self::Service { path, .. } => path,
            Self::Url(uri) => uri.path(),
        }
    }

    /// The endpoint for one CRD: its group and kind are in the path, so that the webhook refuses reviews of other kinds.
    #[must_use]
    pub fn for_crd(&self, crd: &CustomResourceDefinition) -> Self {
        let (group, kind) = (&crd.spec.group, &crd.spec.names.kind);
        let path = format!("{}/{group}/{kind}", self.path().trim_end_matches('/'));
        match self {
            Self::Service { namespace, name, port, .. } => {
                Self::Service { namespace: namespace.clone(), name: name.clone(), port: *port, path }
            }
            Self::Url(uri) => {
                let mut parts = uri.clone().into_parts();
                parts.path_and_query = path.parse().ok();
                Self::Url(Uri::from_parts(parts).unwrap_or_else(|_| uri.clone()))
            }
        }
    }

    /// Whether a client configuration leads to this webhook, at whatever port and path.
    pub(crate) fn is_called_by(&self, config: &WebhookClientConfig) -> bool {
        match self {
            Self::Service { namespace, name, .. } => config
                .service
                .as_ref()
                .is_some_and(|service| service.namespace == *namespace && service.name == *name),
            Self::Url(uri) => {
                let url = config.url.as_ref().and_then(|url| url.parse::<Uri>().ok());
                url.is_some_and(|url| url.authority() == uri.authority())
            }
        }
    }

    /// The client configuration of a CRD, without a caBundle.
    pub(crate) fn client_config(&self) -> Value {
        match self {
            Self::Service { namespace, name, port, path } => {
                json!({"service": {"namespace": namespace, "name": name, "port": port, "path": path}})
            }
            Self::Url(uri) => json!({"url": uri.to_string()}),
        }
    }
}

/// The webhook's name, as an annotation of CRDs has it.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service { namespace, name, .. } => write!(f, "{namespace}/{name}"),
            Self::Url(uri) => write!(f, "{}", uri.authority().map(ToString::to_string).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_host_port_and_path() {
        for (text, host, port, path) in [
            ("https://webhook.example.com/convert", "webhook.example.com", 443, "/convert"),
            ("https://127.0.0.1:8443/convert", "127.0.0.1", 8443, "/convert"),
            ("https://[::1]:8443", "::1", 8443, "/"),
        ] {
            let endpoint = Endpoint::url(text).unwrap();
            assert_eq!((endpoint.host().as_str(), endpoint.port(), endpoint.path()), (host, port, path));
            assert_eq!(endpoint.names(), BTreeSet::from([host.to_owned()]));
        }
        assert_eq!(Endpoint::url("not a url"), Err(InvalidUrl::NotAUrl("not a url".to_owned())));
        for text in ["http://webhook.example.com", "webhook.example.com"] {
            assert_eq!(Endpoint::url(text), Err(InvalidUrl::NotHttps(text.to_owned())));
        }
    }

    #[test]
    fn the_path_for_a_crd_has_its_group_and_kind() {
        let crd = serde_json::from_value(json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [],
            },
        }));
        let crd = crd.unwrap();
        for (base, expected) in [
            ("https://127.0.0.1:8443/convert", "https://127.0.0.1:8443/convert/example.com/Widget"),
            ("https://127.0.0.1:8443", "https://127.0.0.1:8443/example.com/Widget"),
        ] {
            let endpoint = Endpoint::url(base).unwrap().for_crd(&crd);
            assert_eq!(endpoint, Endpoint::url(expected).unwrap());
        }
    }

    #[test]
    fn a_service_is_verified_by_its_name_in_the_cluster() {
        let endpoint = Endpoint::Service {
            namespace: "restow-system".to_owned(),
            name: "webhook".to_owned(),
            port: 443,
            path: "/convert".to_owned(),
        };
        assert_eq!(endpoint.host(), "webhook.restow-system.svc");
        assert!(endpoint.names().contains("webhook.restow-system.svc"));
        assert_eq!(endpoint.to_string(), "restow-system/webhook");
    }
}
