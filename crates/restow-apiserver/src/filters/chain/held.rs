//! A body that holds its request's place until it has been sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::http::body::Body;
use crate::http::limits::Place;

/// Up to how many bytes an answer holds no place: it costs next to nothing, and who asks for it need not be known.
const SMALL: usize = 64 * 1024;

/// The body of an answer, and the place of its request among those under way.
pub(crate) struct Held {
    body: Body,
    _place: Option<Arc<Place>>,
}

impl Held {
    pub(super) fn new(body: Body, place: Arc<Place>) -> Self {
        let small = HttpBody::is_end_stream(&body) || body.whole().is_some_and(|bytes| bytes.len() <= SMALL);
        Self { body, _place: (!small).then_some(place) }
    }

    pub(super) fn free(body: Body) -> Self {
        Self { body, _place: None }
    }
}

impl HttpBody for Held {
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
