//! Response bodies: complete bytes, or a stream of frames.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use futures::stream::BoxStream;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// The body of a response.
pub(crate) struct Body(Kind);

enum Kind {
    Whole(Option<Bytes>),
    Frames(BoxStream<'static, io::Result<Bytes>>),
}

impl Body {
    /// No bytes at all.
    pub(crate) fn empty() -> Self {
        Self(Kind::Whole(None))
    }

    /// All bytes, if they are known.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.0 {
            Kind::Whole(bytes) => bytes.as_ref(),
            Kind::Frames(_) => None,
        }
    }

    /// A stream of frames. An error aborts the connection.
    pub(crate) fn frames(frames: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self(Kind::Frames(Box::pin(frames)))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Frames(frames) => {
                frames.as_mut().poll_next(context).map(|bytes| bytes.map(|bytes| bytes.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Frames(_) => SizeHint::default(),
        }
    }
}
