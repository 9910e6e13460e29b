//! The handlers as a tower service, and in-process clients of it.

use std::convert::Infallible;
use std::panic::resume_unwind;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use tower::Service;

use crate::http::body::Body;
use crate::http::limits::InFlightPermit;
use crate::http::request_info;
use crate::http::response::error_response;
use crate::http::status::StatusError;
use crate::server::handler::handle;
use crate::verbs::api::Api;

/// Answers requests while the server runs. A client that outlives the server does not keep the store open.
#[derive(Clone)]
pub(crate) struct Handlers(Weak<Api>);

impl Handlers {
    /// The handlers of a server.
    pub(crate) fn new(api: &Arc<Api>) -> Self {
        Self(Arc::downgrade(api))
    }
}

impl Service<Request<Bytes>> for Handlers {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let api = self.0.upgrade();
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let permit = request.extensions().get::<Arc<InFlightPermit>>().cloned();
        let answer = async move {
            match api {
                Some(api) if reads => handle(&api, request).await,
                Some(api) => {
                    let work = async move {
                        let _permit = permit;
                        handle(&api, request).await
                    };
                    to_completion(work).await
                }
                None => error_response(&StatusError::service_unavailable("the server has stopped")),
            }
        };
        answer.map(Ok).boxed()
    }
}

/// Completes a write even if its client has left: it must hold its write permit and its in-flight permit until it is
/// stored.
async fn to_completion(work: impl Future<Output = Response<Body>> + Send + 'static) -> Response<Body> {
    match tokio::spawn(work).await {
        Ok(response) => response,
        Err(ended) if ended.is_panic() => resume_unwind(ended.into_panic()),
        Err(_) => error_response(&StatusError::service_unavailable("the server has stopped")),
    }
}

/// A client that calls a service in this process.
pub(crate) fn client<S>(service: S) -> kube::Client
where
    S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let mut service = service.clone();
        async move {
            let (mut head, body) = request.into_parts();
            request_info::attach(&mut head);
            let bytes = body.collect_bytes().await?;
            let Ok(response) = service.call(Request::from_parts(head, bytes)).await;
            Ok::<_, kube::Error>(response)
        }
    });
    kube::Client::new(service, "default")
}
