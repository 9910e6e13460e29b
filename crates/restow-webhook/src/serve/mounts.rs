//! An operator's own handlers beside the conversion.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use tower::Service;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use super::answer_body::AnyBody;

type Handler = BoxCloneSyncService<Request<Full<Bytes>>, Response<AnyBody>, Infallible>;

/// Handlers by their paths.
#[derive(Default)]
pub(super) struct Mounts(Vec<(String, Handler)>);

impl Mounts {
    pub(super) fn add<S, B>(&mut self, path: &str, service: S)
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let path = format!("/{}", path.trim_matches('/'));
        let service = service.map_response(|response: Response<B>| {
            response.map(|body| body.map_err(Into::into).boxed_unsync())
        });
        self.0.push((path, BoxCloneSyncService::new(service)));
    }

    /// The handler of a path: the one with the longest path above it.
    pub(super) fn find(&self, path: &str) -> Option<Handler> {
        let covers = |mounted: &str| {
            path.strip_prefix(mounted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let covering = self.0.iter().filter(|(mounted, _)| mounted == "/" || covers(mounted));
        covering.max_by_key(|(mounted, _)| mounted.len()).map(|(_, handler)| handler.clone())
    }
}
