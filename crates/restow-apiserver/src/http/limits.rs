//! What one request, and all of them together, may cost the server.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::shares::{Share, Shares};
use crate::http::status::Failure;

/// How large the body of a request may be, as kube-apiserver has it.
pub(crate) const BODY: usize = 3 * 1024 * 1024;
/// How much all bodies may have together that are being read: no client fills the memory, and none that sends slowly
/// takes a place among the requests under way.
const BODIES: usize = 64 * BODY;
/// How much of that one user may have: one that stalls leaves room for others.
const SHARE: usize = BODIES / 4;
/// How much of one that is too large is read and forgotten.
const DISCARDED: usize = 4 * BODY;
/// How deep what is stored may be nested: less than a parser of JSON goes down, so that it can be read again.
pub(crate) const DEPTH: usize = 100;
/// How long a request may take that is not a watch.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// After how many seconds one that was refused may come again.
const RETRY_AFTER: u32 = 1;

/// How many requests there may be at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtOnce {
    /// Those that change something.
    pub mutating: usize,
    /// Those that only read.
    pub reading: usize,
    /// Watches, which are no requests of either sort.
    pub watches: usize,
}

impl Default for AtOnce {
    /// What kube-apiserver has, and a bound on watches.
    fn default() -> Self {
        Self { mutating: 200, reading: 400, watches: 4096 }
    }
}

/// What sort of request one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// It changes something.
    Mutating,
    /// It only reads.
    Reading,
    /// It goes on for long.
    Watch,
    /// It asks whether the server is well, which a server that is full can be.
    Probe,
}

/// Keeps count of the requests under way.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    mutating: Arc<Semaphore>,
    reading: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    /// What each user has of the bodies.
    shares: Shares<String>,
}

/// The room that a body takes while it is read, given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Room {
    share: Option<Share<String>>,
    all: Option<OwnedSemaphorePermit>,
}

/// A place among the requests under way, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place(#[allow(dead_code, reason = "held, not read")] Option<OwnedSemaphorePermit>);

impl InFlight {
    /// None under way yet.
    pub(crate) fn new(at_once: AtOnce) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            mutating: places(at_once.mutating),
            reading: places(at_once.reading),
            watches: places(at_once.watches),
            bodies: places(BODIES),
            shares: Shares::new(SHARE),
        }
    }

    /// A place for a request; it does not wait for one, and masters wait no less than others.
    pub(crate) fn enter(&self, sort: Sort) -> Result<Place, Failure> {
        let places = match sort {
            Sort::Mutating => &self.mutating,
            Sort::Reading => &self.reading,
            Sort::Watch => &self.watches,
            Sort::Probe => return Ok(Place(None)),
        };
        let place = Arc::clone(places).try_acquire_owned();
        place.map(|place| Place(Some(place))).map_err(|_| too_many())
    }

    /// Reads a body that is not too large, as long as there is room for what has come of it.
    pub(crate) async fn read<B>(&self, user: &str, body: B) -> Result<(Bytes, Room), Failure>
    where
        B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        if body.size_hint().lower() > BODY as u64 {
            discard(body).await;
            return Err(too_large());
        }
        let (mut body, mut read, mut room) = (pin!(body), BytesMut::new(), Room::default());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Failure::bad_request(format!("the body cannot be read: {}", error.into()))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if read.len() + data.remaining() > BODY {
                return Err(too_large());
            }
            room.grow(self, user, data.remaining())?;
            read.put(data);
        }
        Ok((read.freeze(), room))
    }
}

impl Room {
    fn grow(&mut self, in_flight: &InFlight, user: &str, bytes: usize) -> Result<(), Failure> {
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

fn too_many() -> Failure {
    Failure::too_many_requests("Too many requests, please try again later.", RETRY_AFTER)
}

/// Reads what nobody wants, up to a bound: a client that is still sending when the connection closes does not hear
/// why.
async fn discard<B: Body>(body: B) {
    let (mut body, mut left) = (pin!(body), DISCARDED);
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Buf::remaining)) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

fn too_large() -> Failure {
    Failure::too_large(&format!("limit is {BODY}"))
}

/// Refuses what is nested too deep to be stored; patches can nest deeper than any body.
pub(crate) fn check_depth(object: &Value) -> Result<(), Failure> {
    let mut level: Vec<&Value> = vec![object];
    for _ in 0..=DEPTH {
        if level.is_empty() {
            return Ok(());
        }
        level = level.into_iter().flat_map(below).collect();
    }
    Err(Failure::bad_request(format!("the object is nested deeper than {DEPTH} levels")))
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
    fn each_sort_has_its_own_places() {
        let in_flight = InFlight::new(AtOnce { mutating: 1, reading: 2, watches: 0 });
        let enter =
            |sort| in_flight.enter(sort).map_err(|failure| (failure.code(), failure.retry_after_seconds()));
        let full = (429, Some(1));
        let write = enter(Sort::Mutating).unwrap();
        assert_eq!(enter(Sort::Mutating).unwrap_err(), full);
        let reads = [enter(Sort::Reading).unwrap(), enter(Sort::Reading).unwrap()];
        assert_eq!(enter(Sort::Reading).unwrap_err(), full);
        assert_eq!(enter(Sort::Watch).unwrap_err(), full);
        assert!(enter(Sort::Probe).is_ok());
        drop((write, reads));
        assert!(enter(Sort::Mutating).is_ok() && enter(Sort::Reading).is_ok());
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_the_limit() {
        let in_flight = InFlight::new(AtOnce::default());
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
    async fn bodies_that_are_read_have_a_limit_together() {
        let in_flight = InFlight::new(AtOnce::default());
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
    async fn bodies_of_one_user_leave_room_for_those_of_others() {
        let in_flight = InFlight::new(AtOnce::default());
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
    fn what_may_be_stored_can_be_read_again() {
        let text = nested(DEPTH).to_string();
        assert!(serde_json::from_str::<Value>(&text).is_ok());
    }
}
