//! A body that holds its request's place until it has been sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};

use crate::limits::Place;

/// The body of an answer, and the place of its request among those under way.
#[derive(Debug)]
pub struct Held<B> {
    body: B,
    _place: Option<Place>,
}

impl<B> Held<B> {
    pub(super) fn new(body: B, place: Place) -> Self {
        Self { body, _place: Some(place) }
    }

    pub(super) fn free(body: B) -> Self {
        Self { body, _place: None }
    }
}

impl<B: Body + Unpin> Body for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
