//! The filters that every request from the network passes.
//!
//! In this order: authentication, impersonation, authorization, the body, the limit of requests in flight, the handler
//! with its timeout, the audit event. The handler sees the user as an extension of the request, and no token. Only the
//! bodies of requests that change something are read.

mod attributes;
mod permit_body;

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
use restow_listen::{Known, Peer};
use tower::{Layer, Service};

use crate::auth::access::Access;
use crate::auth::impersonation;
use crate::auth::impersonation::Impersonation;
use crate::auth::user::{ANONYMOUS, Sender, User};
use crate::filters::audit::{Audit, Event};
use crate::http::body::Body;
use crate::http::limits::{self, InFlight, InFlightLimits, RequestClass};
use crate::http::request_info;
use crate::http::response::{CreatedName, error_response};
use crate::http::status::StatusError;
use crate::object::uid::uid;

use attributes::RequestAttributes;
pub(crate) use permit_body::PermitBody;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The longest Audit-ID that is accepted from a client.
const LONGEST_ID: usize = 64;
/// No proxy may cache a response.
const NOT_KEPT: HeaderValue = HeaderValue::from_static("no-cache, private");

/// Authenticates, authorizes, limits and audits requests. Clones share their limits.
#[derive(Clone, Debug)]
pub(crate) struct FilterChain(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    access: Arc<Access>,
    in_flight: InFlight,
    audit: Audit,
    timeout: Duration,
}

impl FilterChain {
    /// Authenticates and authorizes with `access`.
    pub(crate) fn new(access: Arc<Access>, in_flight_limits: InFlightLimits, audit: Audit) -> Self {
        let in_flight = InFlight::new(in_flight_limits);
        Self(Arc::new(Inner { access, in_flight, audit, timeout: limits::REQUEST_TIMEOUT }))
    }
}

/// The users of a request: who sent it, and whom it impersonates.
struct Requester {
    user: Arc<User>,
    impersonated: Option<Arc<User>>,
}

impl Requester {
    /// The user whose permissions apply.
    fn acts_as(&self) -> &Arc<User> {
        self.impersonated.as_ref().unwrap_or(&self.user)
    }
}

impl Inner {
    fn authorize(
        &self,
        head: &Parts,
        attributes: &RequestAttributes,
    ) -> Result<Requester, (Option<Requester>, StatusError)> {
        let user = self
            .access
            .tokens
            .authenticate(&head.headers)
            .map_err(|_| (None, StatusError::unauthorized()))?;
        let mut requester = Requester { user, impersonated: None };
        match self.impersonate(&requester.user, head) {
            Ok(impersonated) => requester.impersonated = impersonated.map(Arc::new),
            Err(failure) => return Err((Some(requester), failure)),
        }
        let permitted = self.access.policy.current().permit(requester.acts_as(), &attributes.attributes());
        match permitted {
            Ok(()) => Ok(requester),
            Err(failure) => Err((Some(requester), failure)),
        }
    }

    fn impersonate(&self, user: &User, head: &Parts) -> Result<Option<User>, StatusError> {
        let asked = Impersonation::requested(&head.headers);
        let asked = asked.map_err(|error| StatusError::bad_request(error.to_string()))?;
        let Some(asked) = asked else { return Ok(None) };
        let policy = self.access.policy.current();
        asked.needed().iter().try_for_each(|needed| policy.permit(user, needed))?;
        Ok(Some(asked.into_user()))
    }

    /// Answers a request, and returns who sent it as far as that is known.
    async fn answer<S, B>(
        &self,
        mut head: Parts,
        body: B,
        attributes: &RequestAttributes,
        inner: S,
    ) -> (Result<Response<PermitBody>, StatusError>, Option<Requester>)
    where
        S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible>,
        B: HttpBody<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let requester = match self.authorize(&head, attributes) {
            Ok(requester) => requester,
            Err((requester, failure)) => return (Err(failure), requester),
        };
        impersonation::strip(&mut head.headers);
        head.extensions.insert(Sender(Arc::clone(requester.acts_as())));
        let class = attributes.class();
        let answered = self.in_time(class, self.handled(class, head, body, &requester.user, inner)).await;
        (answered, Some(requester))
    }

    /// Reads the body, takes an in-flight permit and calls the handler.
    async fn handled<S, B>(
        &self,
        class: RequestClass,
        mut head: Parts,
        body: B,
        user: &User,
        inner: S,
    ) -> Result<Response<PermitBody>, StatusError>
    where
        S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible>,
        B: HttpBody<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (body, reservation) = match class {
            RequestClass::Mutating => self.in_flight.read(&user.name, body).await?,
            RequestClass::ReadOnly | RequestClass::Watch | RequestClass::Probe => Default::default(),
        };
        let permit = Arc::new(self.in_flight.enter(class)?);
        drop(reservation);
        // A write goes on when its client has left, and keeps its permit.
        head.extensions.insert(Arc::clone(&permit));
        let response = handled(head, body, inner).await?;
        Ok(response.map(|body| PermitBody::new(body, permit)))
    }

    async fn in_time(
        &self,
        class: RequestClass,
        handled: impl Future<Output = Result<Response<PermitBody>, StatusError>>,
    ) -> Result<Response<PermitBody>, StatusError> {
        if class == RequestClass::Watch {
            return handled.await;
        }
        let late = |_| StatusError::timeout("request did not complete within the allotted timeout", 0);
        tokio::time::timeout(self.timeout, handled).await.map_err(late)?
    }
}

async fn handled<S>(head: Parts, body: Bytes, mut inner: S) -> Result<Response<Body>, StatusError>
where
    S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible>,
{
    // A panic of a handler ends its request, and no other request on the connection.
    let answered =
        AssertUnwindSafe(async { inner.call(Request::from_parts(head, body)).await }).catch_unwind();
    answered.await.map(|Ok(response)| response).map_err(|panic| panicked(&*panic))
}

fn panicked(panic: &(dyn Any + Send)) -> StatusError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown panic");
    tracing::error!("a handler panicked: {text}");
    StatusError::internal("the server has a bug; see its log")
}

impl FilterChain {
    /// Passes a request through the filters to `inner`.
    pub(crate) async fn handle<S, B>(&self, request: Request<B>, inner: S) -> Response<PermitBody>
    where
        S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible>,
        B: HttpBody<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let received = restow_clock::now();
        let (mut head, body) = request.into_parts();
        let attributes = RequestAttributes::new(request_info::attach(&mut head));
        let id = id(&head);
        let sent = self
            .0
            .audit
            .is_on()
            .then(|| RequestHead::of(&head))
            .filter(|_| attributes.class() == RequestClass::Mutating);
        let (answered, requester) = self.0.answer(head, body, &attributes, inner).await;
        let mut response = answered.unwrap_or_else(|failure| error_response(&failure).map(PermitBody::free));
        if let Some(sent) = sent {
            let named = response.extensions().get::<CreatedName>().map(|CreatedName(name)| name.as_str());
            self.record(
                &sent,
                &attributes,
                &id,
                received,
                requester.as_ref(),
                named,
                response.status().as_u16(),
            );
        }
        if requester.is_some_and(|requester| requester.user.name != ANONYMOUS) {
            response.extensions_mut().insert(Known);
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
        sent: &RequestHead,
        attributes: &RequestAttributes,
        id: &str,
        received: Timestamp,
        requester: Option<&Requester>,
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
            uri: &sent.uri,
            verb: attributes.attributes().verb,
            user: requester.map_or(&nobody, |requester| &requester.user),
            impersonated: requester.and_then(|requester| requester.impersonated.as_deref()),
            source: sent.peer.map(|Peer(peer)| peer.ip()),
            user_agent: &sent.user_agent,
            object,
            code,
        });
    }
}

/// What an audit event needs of a request's head.
struct RequestHead {
    uri: String,
    user_agent: String,
    peer: Option<Peer>,
}

impl RequestHead {
    fn of(head: &Parts) -> Self {
        let uri = head.uri.path_and_query().map_or(head.uri.path(), |uri| uri.as_str()).to_owned();
        let user_agent =
            head.headers.get(header::USER_AGENT).map(|agent| agent.as_bytes()).unwrap_or_default();
        let user_agent = String::from_utf8_lossy(user_agent).into_owned();
        Self { uri, user_agent, peer: head.extensions.get::<Peer>().copied() }
    }
}

/// The Audit-ID that the client sent, or a new one.
fn id(head: &Parts) -> String {
    let given = head.headers.get(&AUDIT_ID).and_then(|id| id.to_str().ok());
    match given.filter(|id| !id.is_empty() && id.len() <= LONGEST_ID) {
        Some(id) => id.to_owned(),
        None => uid(),
    }
}

impl<S> Layer<S> for FilterChain {
    type Service = FilteredService<S>;

    fn layer(&self, inner: S) -> FilteredService<S> {
        FilteredService { chain: self.clone(), inner }
    }
}

/// A service behind the filters.
#[derive(Clone, Debug)]
pub(crate) struct FilteredService<S> {
    chain: FilterChain,
    inner: S,
}

impl<S> Service<Request<Incoming>> for FilteredService<S>
where
    S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<PermitBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let (chain, inner) = (self.chain.clone(), self.inner.clone());
        async move { Ok(chain.handle(request, inner).await) }.boxed()
    }
}

#[cfg(test)]
mod tests;
