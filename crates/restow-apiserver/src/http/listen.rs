//! Listens for clients, with a certificate that is renewed while it is used.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use restow_listen::Settings;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::http::tls::{ServingCertificate, TlsError};

/// How often the serving certificate is renewed. It is valid for a year.
const RENEW_EVERY: Duration = Duration::from_secs(30 * 24 * 3600);

/// Serves until `stop` is cancelled. Requests in flight are then answered, within a grace period.
pub async fn serve<S, B>(
    listener: TcpListener,
    serving: Arc<ServingCertificate>,
    service: S,
    stop: CancellationToken,
) -> Result<(), TlsError>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let acceptor = serving.acceptor()?;
    let served = restow_listen::serve(listener, acceptor, service, stop, Settings::default());
    tokio::select! {
        () = served => Ok(()),
        never = renew(&serving) => match never {},
    }
}

async fn renew(serving: &ServingCertificate) -> Infallible {
    let mut renewal = tokio::time::interval_at(restow_clock::Instant::now() + RENEW_EVERY, RENEW_EVERY);
    loop {
        renewal.tick().await;
        if let Err(error) = serving.renew(restow_clock::now()) {
            tracing::warn!("could not renew the serving certificate; keeping the current one: {error}");
        }
    }
}
