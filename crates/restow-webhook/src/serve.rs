//! The HTTPS server of a conversion webhook.
//!
//! | path | what it does |
//! |---|---|
//! | `/convert/GROUP/KIND` | answers ConversionReviews of one kind, and refuses other kinds |
//! | `/convert` | answers ConversionReviews of all kinds that have a converter |
//! | `/healthz` | fails when every thread is held by a converter that does not return: restart the process |
//! | `/readyz` | fails before the converters are loaded, and from the moment the server is told to stop |
//! | `/metrics` | Prometheus metrics |
//! | what [`Server::mount`] adds | an operator's own handlers, such as admission webhooks |
//!
//! Converters are synchronous and may be wrong, so each review runs on a thread of its own, within [`Settings::timeout`].
//! Large reviews are shared with other threads, as far as [`Settings::helpers`] are free.
//! A converter that panics, or that does not return, costs its own request only. A thread cannot be ended from outside: one
//! that does not return is abandoned, and another takes its place, up to [`Settings::abandoned`]. Above that, abandoned
//! threads take the place of working ones; when none is left, `/healthz` fails.

mod answer_body;
mod helpers;
mod metrics;
mod mounts;
mod request_body;
mod respond;
mod reviews;
mod router;
mod settings;
mod workers;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_rustls::rustls::server::ResolvesServerCert;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::LiveConverters;
use mounts::Mounts;
use router::{Gate, Router};

pub use metrics::Metrics;
pub use settings::Settings;

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// TLS could not be set up.
    #[error("could not set up TLS")]
    Tls(#[from] tokio_rustls::rustls::Error),
}

/// A conversion webhook that can be started.
pub struct Server {
    converters: Arc<LiveConverters>,
    settings: Settings,
    mounts: Mounts,
    gates: Vec<Gate>,
    registry: Registry,
}

impl Server {
    /// A server of these converters.
    pub fn new(converters: Arc<LiveConverters>) -> Self {
        Self {
            converters,
            settings: Settings::default(),
            mounts: Mounts::default(),
            gates: Vec::new(),
            registry: Registry::default(),
        }
    }

    /// Sets limits and timeouts.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Lets `/readyz` fail with a reason for as long as this does. Several of them must all agree.
    #[must_use]
    pub fn ready_when(mut self, gate: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.gates.push(Box::new(gate));
        self
    }

    /// Adds metrics of the operator's own to `/metrics`.
    #[must_use]
    pub fn register_metrics(mut self, register: impl FnOnce(&mut Registry)) -> Self {
        register(&mut self.registry);
        self
    }

    /// Serves requests to a path, and to paths below it, with a handler of the operator's own. Their bodies are read by
    /// the server, within its limits.
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
        self.mounts.add(path, service);
        self
    }

    /// Serves until `stop` is cancelled. Then `/readyz` fails, requests are still served for [`Settings::drain_delay`],
    /// and at last those in flight are answered before the connections close.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub async fn serve(
        self,
        listener: TcpListener,
        certificate: Arc<dyn ResolvesServerCert>,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let acceptor = restow_listen::acceptor(certificate)?;
        let Self { converters, settings, mounts, gates, registry } = self;
        let metrics = Metrics::beside(registry);
        let router = Arc::new(Router::new(converters, settings, mounts, gates, metrics, stop.clone()));
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let router = Arc::clone(&router);
            async move { Ok::<_, Infallible>(router.answer(request).await) }
        });
        let closing = CancellationToken::new();
        let served = restow_listen::serve(listener, acceptor, service, closing.clone(), settings.listen);
        let drain = async {
            stop.cancelled().await;
            tokio::time::sleep(settings.drain_delay).await;
            closing.cancel();
        };
        tokio::join!(served, drain);
        Ok(())
    }
}
