//! Limits on single requests, and on all requests together.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use restow_listen::{Share, Shares};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::status::StatusError;

/// The largest body of a request, as in kube-apiserver.
pub(crate) const BODY: usize = 3 * 1024 * 1024;
/// How many bytes of bodies may be in memory while they are read. No client fills the memory, and slow clients take no
/// in-flight permit.
const BODIES: usize = 64 * BODY;
/// How many of those bytes one user may have.
const SHARE: usize = BODIES / 4;
/// How much of a body that is too large is read and discarded.
const DISCARDED: usize = 4 * BODY;
/// How deep objects may be nested: less than the recursion limit of the JSON parser, so that stored objects can be read.
pub(crate) const DEPTH: usize = 100;
/// The timeout of every request but a watch.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The Retry-After of a refused request, in seconds.
const RETRY_AFTER: u32 = 1;

/// How many requests may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightLimits {
    /// Requests that change something.
    pub mutating: usize,
    /// Requests that only read.
    pub read_only: usize,
    /// Watches, which count as neither of the others.
    pub watches: usize,
}

impl Default for InFlightLimits {
    /// The limits of kube-apiserver, and a limit on watches.
    fn default() -> Self {
        Self { mutating: 200, read_only: 400, watches: 4096 }
    }
}

/// Which limits apply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestClass {
    /// A request that changes something.
    Mutating,
    /// A request that only reads.
    ReadOnly,
    /// A watch: it has no timeout.
    Watch,
    /// A health check: it has no limit, because a full server may be healthy.
    Probe,
}

/// Counts the requests in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    mutating: Arc<Semaphore>,
    read_only: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    /// How many bytes of bodies each user has.
    shares: Shares<String>,
}

/// The memory of a body while it is read, released when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct BodyReservation {
    share: Option<Share<String>>,
    all: Option<OwnedSemaphorePermit>,
}

/// A permit for a request in flight, released when it is dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit(#[allow(dead_code, reason = "held, not read")] Option<OwnedSemaphorePermit>);

impl InFlight {
    /// No requests in flight yet.
    pub(crate) fn new(in_flight_limits: InFlightLimits) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            mutating: places(in_flight_limits.mutating),
            read_only: places(in_flight_limits.read_only),
            watches: places(in_flight_limits.watches),
            bodies: places(BODIES),
            shares: Shares::new(SHARE),
        }
    }

    /// Takes a permit, or fails at once if there is none. `system:masters` is limited like everybody else.
    pub(crate) fn enter(&self, class: RequestClass) -> Result<InFlightPermit, StatusError> {
        let places = match class {
            RequestClass::Mutating => &self.mutating,
            RequestClass::ReadOnly => &self.read_only,
            RequestClass::Watch => &self.watches,
            RequestClass::Probe => return Ok(InFlightPermit(None)),
        };
        let place = Arc::clone(places).try_acquire_owned();
        place.map(|place| InFlightPermit(Some(place))).map_err(|_| too_many())
    }

    /// Reads a body, within the limits on its size and on all bodies.
    pub(crate) async fn read<B>(&self, user: &str, body: B) -> Result<(Bytes, BodyReservation), StatusError>
    where
        B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        if body.size_hint().lower() > BODY as u64 {
            discard(body).await;
            return Err(too_large());
        }
        let (mut body, mut read, mut reservation) = (pin!(body), BytesMut::new(), BodyReservation::default());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                StatusError::bad_request(format!("could not read the body: {}", error.into()))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if read.len() + data.remaining() > BODY {
                return Err(too_large());
            }
            reservation.grow(self, user, data.remaining())?;
            read.put(data);
        }
        Ok((read.freeze(), reservation))
    }
}

impl BodyReservation {
    fn grow(&mut self, in_flight: &InFlight, user: &str, bytes: usize) -> Result<(), StatusError> {
        if !self.share.get_or_insert_with(|| in_flight.shares.of(user.to_owned())).grow(bytes) {
            return Err(too_many());
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let more = Arc::clone(&in_flight.bodies).try_acquire_many_owned(bytes).map_err(|_| too_many())?;
        match &mut self.all {
            Some(own) => own.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

fn too_many() -> StatusError {
    StatusError::too_many_requests("Too many requests, please try again later.", RETRY_AFTER)
}

/// Reads and discards a body, up to a limit. A client that is still sending when the connection closes does not see the
/// response.
async fn discard<B: Body>(body: B) {
    let (mut body, mut left) = (pin!(body), DISCARDED);
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Buf::remaining)) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

fn too_large() -> StatusError {
    StatusError::too_large(&format!("limit is {BODY}"))
}

/// Refuses objects that are nested too deep to be stored. A patch can nest deeper than any body.
pub(crate) fn check_depth(object: &Value) -> Result<(), StatusError> {
    let mut level: Vec<&Value> = vec![object];
    for _ in 0..=DEPTH {
        if level.is_empty() {
            return Ok(());
        }
        level = level.into_iter().flat_map(below).collect();
    }
    Err(StatusError::bad_request(format!("the object is nested deeper than {DEPTH} levels")))
}

fn below(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    let nested = |value: &&Value| value.is_object() || value.is_array();
    match value {
        Value::Object(fields) => Box::new(fields.values().filter(nested)),
        Value::Array(items) => Box::new(items.iter().filter(nested)),
        _ => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_request_class_has_its_own_limit() {
        let in_flight = InFlight::new(InFlightLimits { mutating: 1, read_only: 2, watches: 0 });
        let enter =
            |class| in_flight.enter(class).map_err(|failure| (failure.code(), failure.retry_after_seconds()));
        let full = (429, Some(1));
        let write = enter(RequestClass::Mutating).unwrap();
        assert_eq!(enter(RequestClass::Mutating).unwrap_err(), full);
        let reads = [enter(RequestClass::ReadOnly).unwrap(), enter(RequestClass::ReadOnly).unwrap()];
        assert_eq!(enter(RequestClass::ReadOnly).unwrap_err(), full);
        assert_eq!(enter(RequestClass::Watch).unwrap_err(), full);
        assert!(enter(RequestClass::Probe).is_ok());
        drop((write, reads));
        assert!(enter(RequestClass::Mutating).is_ok() && enter(RequestClass::ReadOnly).is_ok());
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_the_limit() {
        let in_flight = InFlight::new(InFlightLimits::default());
        let read_body = async |body| in_flight.read("a", body).await.map(|(bytes, _)| bytes);
        let whole = |size: usize| Full::new(Bytes::from(vec![b'x'; size]));
        assert_eq!(read_body(whole(0)).await.unwrap().len(), 0);
        assert_eq!(read_body(whole(BODY)).await.unwrap().len(), BODY);
        let failure = read_body(whole(BODY + 1)).await.unwrap_err();
        assert_eq!(failure.code(), 413);
        assert_eq!(failure.message(), "Request entity too large: limit is 3145728");
        let frames = |count: usize| {
            let frame = Bytes::from(vec![b'x'; 1024 * 1024]);
            StreamBody::new(stream::iter(
                (0..count).map(move |_| Ok::<_, std::io::Error>(Frame::data(frame.clone()))),
            ))
        };
        assert_eq!(in_flight.read("a", frames(3)).await.unwrap().0.len(), BODY);
        assert_eq!(in_flight.read("a", frames(4)).await.unwrap_err().code(), 413);
        let broken = stream::iter([Err::<Frame<Bytes>, _>(std::io::Error::other("gone"))]);
        assert_eq!(in_flight.read("a", StreamBody::new(broken)).await.unwrap_err().code(), 400);
    }

    #[tokio::test]
    async fn all_bodies_being_read_have_a_common_limit() {
        let in_flight = InFlight::new(InFlightLimits::default());
        let whole = || Full::new(Bytes::from(vec![b'x'; BODY]));
        let mut read = Vec::new();
        for user in ["a", "b", "c", "d"] {
            for _ in 0..SHARE / BODY {
                read.push(in_flight.read(user, whole()).await.unwrap());
            }
        }
        assert_eq!(in_flight.read("e", whole()).await.unwrap_err().code(), 429);
        assert!(in_flight.read("e", Full::new(Bytes::new())).await.is_ok());
        read.pop();
        assert!(in_flight.read("e", whole()).await.is_ok());
    }

    #[tokio::test]
    async fn the_bodies_of_one_user_leave_room_for_others() {
        let in_flight = InFlight::new(InFlightLimits::default());
        let whole = || Full::new(Bytes::from(vec![b'x'; BODY]));
        let mut read = Vec::new();
        while let Ok(one) = in_flight.read("a", whole()).await {
            read.push(one);
        }
        assert!(in_flight.read("b", whole()).await.is_ok(), "{} of one user", read.len());
        read.pop();
        assert!(in_flight.read("a", whole()).await.is_ok());
        drop(read);
        assert!(in_flight.shares.is_unused());
    }

    fn nested(depth: usize) -> Value {
        (1..depth)
            .fold(json!({}), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({"a": inner}) })
    }

    #[test]
    fn deep_objects_are_refused() {
        for (depth, expected) in [(1, true), (DEPTH, true), (DEPTH + 1, false), (10 * DEPTH, false)] {
            assert_eq!(check_depth(&nested(depth)).is_ok(), expected, "{depth}");
        }
        let wide = json!((0..1000).map(|_| nested(3)).collect::<Vec<_>>());
        assert!(check_depth(&wide).is_ok());
    }

    #[test]
    fn objects_of_the_allowed_depth_can_be_parsed_again() {
        let text = nested(DEPTH).to_string();
        assert!(serde_json::from_str::<Value>(&text).is_ok());
    }
}
