//! The body of an answer. What it takes of the memory is given back as soon as its client has read it.

use std::collections::VecDeque;
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

/// Bytes that are all there, sent in frames. Each chunk is given back as soon as it is sent.
pub(super) struct AnswerBody {
    rest: VecDeque<Bytes>,
    _counted: Option<OwnedSemaphorePermit>,
}

impl AnswerBody {
    /// A body that holds its share of the memory until it is sent.
    pub(super) fn boxed(
        chunks: impl IntoIterator<Item = Bytes>,
        counted: Option<OwnedSemaphorePermit>,
    ) -> AnyBody {
        let rest = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
        let body = Self { rest, _counted: counted };
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
        let Some(mut chunk) = self.rest.pop_front() else { return Poll::Ready(None) };
        if chunk.len() > FRAME {
            let rest = chunk.split_off(FRAME);
            self.rest.push_front(rest);
        }
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.iter().map(|chunk| chunk.len() as u64).sum())
    }
}
