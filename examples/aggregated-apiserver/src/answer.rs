//! Responses, whole or as a stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, SizeHint};
use serde_json::Value;

/// A response.
pub type Answer = Response<Body>;

/// The body of a response.
pub struct Body(UnsyncBoxBody<Bytes, Infallible>);

impl Body {
    /// A streamed body.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece)))).boxed_unsync())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Full::new(bytes).boxed_unsync())
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A response with this content type.
pub fn answer(code: StatusCode, content_type: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// A JSON response.
pub fn json_answer(code: StatusCode, value: &Value) -> Answer {
    answer(code, "application/json", Body::from(Bytes::from(value.to_string())))
}

/// A plain text response.
pub fn text_answer(code: StatusCode, text: &str) -> Answer {
    answer(code, "text/plain; charset=utf-8", Body::from(Bytes::copy_from_slice(text.as_bytes())))
}
