//! The way in from the network: who is it, may they, is there room, and what is written down of it.
//!
//! In this order: authentication, impersonation, authorization, the body, the number of requests at once, the handler
//! within its time, the audit line. What is behind sees the sender as an extension of the request, and no token. Only
//! what changes something has a body: that of any other request is not read.

mod attributes;
mod held;

use std::any::Any;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, header};
use hyper::body::{Body as HttpBody, Incoming};
use jiff::Timestamp;
use tower::{Layer, Service};

use crate::auth::access::Access;
use crate::auth::impersonation;
use crate::auth::impersonation::Impersonation;
use crate::auth::user::{ANONYMOUS, Sender, User};
use crate::filters::audit::{Audit, Event};
use crate::http::body::Body;
use crate::http::limits::{self, AtOnce, InFlight, Sort};
use crate::http::listen::{Authenticated, Peer};
use crate::http::request_info;
use crate::http::response::{Named, refuse};
use crate::http::status::Failure;
use crate::object::uid::uid;

use attributes::RequestAttributes;
pub(crate) use held::Held;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// How long an id may be that a client gives its request.
const LONGEST_ID: usize = 64;
/// Nothing between here and the client may keep an answer.
const NOT_KEPT: HeaderValue = HeaderValue::from_static("no-cache, private");

/// The way in; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Entrance(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    access: Arc<Access>,
    in_flight: InFlight,
    audit: Audit,
    patience: Duration,
}

impl Entrance {
    /// A way in for those there are, as far as they may.
    pub(crate) fn new(access: Arc<Access>, at_once: AtOnce, audit: Audit) -> Self {
        let in_flight = InFlight::new(at_once);
        Self(Arc::new(Inner { access, in_flight, audit, patience: limits::PATIENCE }))
    }
}

/// What became known of a request on its way in.
struct Admitted {
    user: Arc<User>,
    impersonated: Option<Arc<User>>,
}

impl Admitted {
    /// Whom it acts as.
    fn acts_as(&self) -> &Arc<User> {
        self.impersonated.as_ref().unwrap_or(&self.user)
    }
}

impl Inner {
    fn admit(
        &self,
        head: &Parts,
        attributes: &RequestAttributes,
    ) -> Result<Admitted, (Option<Admitted>, Failure)> {
        let user =
            self.access.tokens.authenticate(&head.headers).map_err(|_| (None, Failure::unauthorized()))?;
        let mut admitted = Admitted { user, impersonated: None };
        match self.impersonate(&admitted.user, head) {
            Ok(impersonated) => admitted.impersonated = impersonated.map(Arc::new),
            Err(failure) => return Err((Some(admitted), failure)),
        }
        let permitted = self.access.policy.current().permit(admitted.acts_as(), &attributes.attributes());
        match permitted {
            Ok(()) => Ok(admitted),
            Err(failure) => Err((Some(admitted), failure)),
        }
    }

    fn impersonate(&self, user: &User, head: &Parts) -> Result<Option<User>, Failure> {
        let asked = Impersonation::requested(&head.headers);
        let asked = asked.map_err(|error| Failure::bad_request(error.to_string()))?;
        let Some(asked) = asked else { return Ok(None) };
        let policy = self.access.policy.current();
        asked.needed().iter().try_for_each(|needed| policy.permit(user, needed))?;
        Ok(Some(asked.into_user()))
    }

    /// Answers a request; the second is who sent it, as far as that is known.
    async fn answer<S, B>(
        &self,
        mut head: Parts,
        body: B,
        attributes: &RequestAttributes,
        inner: S,
    ) -> (Result<Response<Held>, Failure>, Option<Admitted>)
    where
        S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible>,
        B: HttpBody<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let admitted = match self.admit(&head, attributes) {
            Ok(admitted) => admitted,
            Err((admitted, failure)) => return (Err(failure), admitted),
        };
        impersonation::strip(&mut head.headers);
        head.extensions.insert(Sender(Arc::clone(admitted.acts_as())));
        let sort = attributes.sort();
        let answered = self.in_time(sort, self.handled(sort, head, body, &admitted.user, inner)).await;
        (answered, Some(admitted))
    }

    /// Reads the body, takes a place and lets the request be handled.
    async fn handled<S, B>(
        &self,
        sort: Sort,
        mut head: Parts,
        body: B,
        user: &User,
        inner: S,
    ) -> Result<Response<Held>, Failure>
    where
        S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible>,
        B: HttpBody<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (body, room) = match sort {
            Sort::Mutating => self.in_flight.read(&user.name, body).await?,
            Sort::Reading | Sort::Watch | Sort::Probe => Default::default(),
        };
        let place = Arc::new(self.in_flight.enter(sort)?);
        drop(room);
        // What goes on when its client has left keeps its place.
        head.extensions.insert(Arc::clone(&place));
        let response = handled(head, body, inner).await?;
        Ok(response.map(|body| Held::new(body, place)))
    }

    async fn in_time(
        &self,
        sort: Sort,
        handled: impl Future<Output = Result<Response<Held>, Failure>>,
    ) -> Result<Response<Held>, Failure> {
        if sort == Sort::Watch {
            return handled.await;
        }
        let late = |_| Failure::timeout("request did not complete within the allotted timeout", 0);
        tokio::time::timeout(self.patience, handled).await.map_err(late)?
    }
}

async fn handled<S>(head: Parts, body: Bytes, mut inner: S) -> Result<Response<Body>, Failure>
where
    S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible>,
{
    // A fault in a handler is the end of its request, not of others on the connection.
    let answered =
        AssertUnwindSafe(async { inner.call(Request::from_parts(head, body)).await }).catch_unwind();
    answered.await.map(|Ok(response)| response).map_err(|panic| fault(&*panic))
}

fn fault(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of an unknown kind");
    tracing::error!("a handler has a fault: {text}");
    Failure::internal("a fault of the server; its log has more")
}

impl Entrance {
    /// Answers a request from the network.
    pub(crate) async fn enter<S, B>(&self, request: Request<B>, inner: S) -> Response<Held>
    where
        S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible>,
        B: HttpBody<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let received = restow_clock::now();
        let (mut head, body) = request.into_parts();
        let attributes = RequestAttributes::new(request_info::attach(&mut head));
        let id = id(&head);
        let note =
            self.0.audit.is_on().then(|| Note::of(&head)).filter(|_| attributes.sort() == Sort::Mutating);
        let (answered, admitted) = self.0.answer(head, body, &attributes, inner).await;
        let mut response = answered.unwrap_or_else(|failure| refuse(&failure).map(Held::free));
        if let Some(note) = note {
            let named = response.extensions().get::<Named>().map(|Named(name)| name.as_str());
            self.record(
                &note,
                &attributes,
                &id,
                received,
                admitted.as_ref(),
                named,
                response.status().as_u16(),
            );
        }
        if admitted.is_some_and(|admitted| admitted.user.name != ANONYMOUS) {
            response.extensions_mut().insert(Authenticated);
        }
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, NOT_KEPT);
        if let Ok(id) = HeaderValue::try_from(id) {
            headers.insert(AUDIT_ID, id);
        }
        response
    }

    #[allow(clippy::too_many_arguments, reason = "all that is known of a request at its end")]
    fn record(
        &self,
        note: &Note,
        attributes: &RequestAttributes,
        id: &str,
        received: Timestamp,
        admitted: Option<&Admitted>,
        named: Option<&str>,
        code: u16,
    ) {
        let nobody = User::anonymous();
        let mut object = attributes.object();
        object.name = named.unwrap_or(object.name);
        self.0.audit.record(&Event {
            id,
            received,
            answered: restow_clock::now(),
            uri: &note.uri,
            verb: attributes.attributes().verb,
            user: admitted.map_or(&nobody, |admitted| &admitted.user),
            impersonated: admitted.and_then(|admitted| admitted.impersonated.as_deref()),
            source: note.peer.map(|Peer(peer)| peer.ip()),
            user_agent: &note.user_agent,
            object,
            code,
        });
    }
}

/// What an audit line has of a request's head, which is gone by then.
struct Note {
    uri: String,
    user_agent: String,
    peer: Option<Peer>,
}

impl Note {
    fn of(head: &Parts) -> Self {
        let uri = head.uri.path_and_query().map_or(head.uri.path(), |uri| uri.as_str()).to_owned();
        let user_agent =
            head.headers.get(header::USER_AGENT).map(|agent| agent.as_bytes()).unwrap_or_default();
        let user_agent = String::from_utf8_lossy(user_agent).into_owned();
        Self { uri, user_agent, peer: head.extensions.get::<Peer>().copied() }
    }
}

/// The id a client gave its request, or one of its own.
fn id(head: &Parts) -> String {
    let given = head.headers.get(&AUDIT_ID).and_then(|id| id.to_str().ok());
    match given.filter(|id| !id.is_empty() && id.len() <= LONGEST_ID) {
        Some(id) => id.to_owned(),
        None => uid(),
    }
}

impl<S> Layer<S> for Entrance {
    type Service = Entered<S>;

    fn layer(&self, inner: S) -> Entered<S> {
        Entered { entrance: self.clone(), inner }
    }
}

/// A service behind the way in.
#[derive(Clone, Debug)]
pub(crate) struct Entered<S> {
    entrance: Entrance,
    inner: S,
}

impl<S> Service<Request<Incoming>> for Entered<S>
where
    S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Held>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let (entrance, inner) = (self.entrance.clone(), self.inner.clone());
        async move { Ok(entrance.enter(request, inner).await) }.boxed()
    }
}

#[cfg(test)]
mod tests;
