//! The handlers as services: one for each entrance, and clients that stand on them.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use tower::Service;

use crate::api::Api;
use crate::body::Body;
use crate::handler::handle;

/// Answers requests whose bodies were read.
#[derive(Clone)]
pub struct Handlers(pub Arc<Api>);

impl Service<Request<Bytes>> for Handlers {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let api = Arc::clone(&self.0);
        async move { Ok(handle(&api, request).await) }.boxed()
    }
}

/// A client that reaches a service without a network.
pub fn client<S>(service: S) -> kube::Client
where
    S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let mut service = service.clone();
        async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect_bytes().await?;
            let Ok(response) = service.call(Request::from_parts(head, bytes)).await;
            Ok::<_, kube::Error>(response)
        }
    });
    kube::Client::new(service, "default")
}
