//! The webhook server of an operator: conversion of its own kinds, and its own admission handlers, on one listener with one
//! certificate.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Body;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use restow_convert::{Converter, Converters, TwoConverters};
use restow_lease::Stop;
use restow_webhook::certificates::rotation::{Lifetimes, Wanted};
use restow_webhook::certificates::{CertificateKeeper, CertificateSettings};
use restow_webhook::registration::{Endpoint, InvalidUrl};
use restow_webhook::serve::ServeError;
use restow_webhook::{LiveConverters, Server, Settings};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::admission::Configuration;
use crate::coverage::Coverage;
use crate::replicas::Replicas;

/// The path of reviews; group and kind of a CRD follow it.
const PATH: &str = "/convert";

/// Why a webhook cannot be used for the CRDs of an operator.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum WebhookError {
    /// Two converters are for the same kind.
    #[error(transparent)]
    TwoConverters(#[from] TwoConverters),
    /// A converter is for a kind that no definition has.
    #[error("there is a converter for {0}, but no definition; hand over its CRD as well")]
    NoDefinition(String),
    /// A converter does not know a version of its definition.
    #[error("the converter for {kind} does not know {}, which the definition has", versions.join(", "))]
    UnknownVersions {
        /// The kind, with its group.
        kind: String,
        /// The versions.
        versions: Vec<String>,
    },
}

/// The webhook server of an operator, before it is started.
pub struct Webhook {
    pub(crate) endpoint: Endpoint,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) converters: Vec<Converter>,
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) check_every: Duration,
    pub(crate) live: Arc<LiveConverters>,
    pub(crate) server: Server,
    lifetimes: Lifetimes,
}

impl Webhook {
    /// A webhook that API servers call through a Service, at its port 443. The Service, the Secret of the certificates and the
    /// Leases of the replicas are in this namespace.
    pub fn service(namespace: &str, name: &str) -> Self {
        let endpoint = Endpoint::Service {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            port: 443,
            path: PATH.to_owned(),
        };
        Self::at(endpoint, namespace, name)
    }

    /// A webhook that API servers call at a URL such as `https://127.0.0.1:9443`, for an operator outside the cluster. The
    /// Secret and the Leases are in this namespace, and their names begin with `name`.
    ///
    /// # Errors
    /// When an API server would refuse the URL.
    pub fn url(url: &str, namespace: &str, name: &str) -> Result<Self, InvalidUrl> {
        let endpoint = Endpoint::url(&format!("{}{PATH}", url.trim_end_matches('/')))?;
        Ok(Self::at(endpoint, namespace, name))
    }

    fn at(endpoint: Endpoint, namespace: &str, name: &str) -> Self {
        let live = Arc::new(LiveConverters::default());
        Self {
            endpoint,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            converters: Vec::new(),
            configurations: Vec::new(),
            check_every: Duration::from_secs(10),
            server: Server::new(Arc::clone(&live)),
            live,
            lifetimes: Lifetimes::default(),
        }
    }

    /// Converts the objects of one of the operator's kinds: a `Chain` of Rust types or rules, or any `Converter`.
    #[must_use]
    pub fn convert(mut self, converter: impl Into<Converter>) -> Self {
        self.converters.push(converter.into());
        self
    }

    /// Serves requests to a path with a handler of the operator's own.
    #[must_use]
    pub fn mount<S, B>(mut self, path: &str, service: S) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.server = self.server.mount(path, service);
        self
    }

    /// Registers an admission handler that is mounted at this path. The `clientConfig` of all its webhooks is filled in, and
    /// kept as certificates change.
    #[must_use]
    pub fn validating(mut self, path: &str, configuration: &ValidatingWebhookConfiguration) -> Self {
        self.configurations.push(Configuration::validating(path, configuration));
        self
    }

    /// The same for a handler that changes objects.
    #[must_use]
    pub fn mutating(mut self, path: &str, configuration: &MutatingWebhookConfiguration) -> Self {
        self.configurations.push(Configuration::mutating(path, configuration));
        self
    }

    /// Sets limits and timeouts of the server.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.server = self.server.settings(settings);
        self
    }

    /// How often CRDs and certificates are checked; 10 seconds by default.
    #[must_use]
    pub fn check_every(mut self, period: Duration) -> Self {
        self.check_every = period;
        self
    }

    /// How long certificates are valid, and when they are renewed.
    #[must_use]
    pub fn lifetimes(mut self, lifetimes: Lifetimes) -> Self {
        self.lifetimes = lifetimes;
        self
    }

    /// The name of the Secret with the certificates.
    pub(crate) fn secret(&self) -> String {
        format!("{}-certificates", self.name)
    }

    pub(crate) fn certificates(&self) -> CertificateSettings {
        CertificateSettings {
            namespace: self.namespace.clone(),
            secret: self.secret(),
            foreign: false,
            wanted: Wanted { names: self.endpoint.names(), lifetimes: self.lifetimes.clone() },
            check_every: self.check_every,
        }
    }

    /// Puts the converters into use.
    pub(crate) fn load(&self) -> Result<(), TwoConverters> {
        self.live.replace(Converters::new(self.converters.clone())?);
        Ok(())
    }
}

/// One replica of an operator's webhook. Every replica runs it, whether it leads or not.
pub struct Replica {
    pub(crate) server: Server,
    pub(crate) keeper: CertificateKeeper,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) coverage: Arc<Coverage>,
}

impl Replica {
    /// Serves until `stop` is cancelled and requests in flight are answered. `/readyz` fails while there is no valid
    /// certificate, and if a CRD has a version that this release cannot convert.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub async fn run(self, listener: TcpListener, stop: CancellationToken) -> Result<(), ServeError> {
        let Self { server, keeper, replicas, coverage } = self;
        let (serving, checked, covered) = (keeper.serving(), keeper.serving(), Arc::clone(&coverage));
        let server = server
            .ready_when(move || checked.check(restow_clock::now()).map_err(|error| error.to_string()))
            .ready_when(move || covered.check());
        let ended = CancellationToken::new();
        let until_ended = Stop::from(ended.clone());
        let serve = async {
            let served = server.serve(listener, serving, stop).await;
            ended.cancel();
            served
        };
        let beside = async {
            tokio::join!(
                keeper.run(&until_ended),
                replicas.renew(&until_ended),
                coverage.follow(&until_ended)
            );
            replicas.leave().await;
        };
        tokio::join!(serve, beside).0
    }
}
