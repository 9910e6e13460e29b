//! The body of an answer. What it takes of the memory is given back as soon as its client has read it.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

/// How much is sent at once. Small enough that a client that does not read holds little besides what is counted.
const FRAME: usize = 64 * 1024;

/// A body of any kind.
pub(super) type AnyBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// Whole bytes, sent in frames.
pub(super) struct AnswerBody {
    rest: Bytes,
    _counted: Option<OwnedSemaphorePermit>,
}

impl AnswerBody {
    /// A body that holds its share of the memory until it is sent.
    pub(super) fn boxed(bytes: impl Into<Bytes>, counted: Option<OwnedSemaphorePermit>) -> AnyBody {
        let body = Self { rest: bytes.into(), _counted: counted };
        body.map_err(|never| match never {}).boxed_unsync()
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(FRAME);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
