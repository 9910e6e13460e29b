//! A response body that holds the in-flight permit of its request until it is sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::http::body::Body;
use crate::http::limits::InFlightPermit;

/// Smaller responses hold no permit: they cost little, and unauthenticated users may ask for them.
const SMALL: usize = 64 * 1024;

/// A response body, and the in-flight permit of its request.
pub(crate) struct PermitBody {
    body: Body,
    _place: Option<Arc<InFlightPermit>>,
}

impl PermitBody {
    pub(super) fn new(body: Body, permit: Arc<InFlightPermit>) -> Self {
        let small = HttpBody::is_end_stream(&body) || body.whole().is_some_and(|bytes| bytes.len() <= SMALL);
        Self { body, _place: (!small).then_some(permit) }
    }

    pub(super) fn free(body: Body) -> Self {
        Self { body, _place: None }
    }
}

impl HttpBody for PermitBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
