//! Delegates authentication and authorization to kube-apiserver.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::error::ApiError;
use crate::front_proxy::FrontProxy;
use crate::request::{ResourcePath, Verb};
use crate::ship::{GROUP, RESOURCE};
use crate::user::User;

/// How long an access review is cached.
const CACHE_FOR: Duration = Duration::from_secs(10);
/// How many access reviews are cached.
const CACHE_SIZE: usize = 4096;
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// The group that may do everything without a review, as in Kubernetes' own servers.
const MASTERS: &str = "system:masters";

/// A user and what they want to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AccessRequest {
    user: User,
    verb: &'static str,
    version: &'static str,
    namespace: Option<String>,
    name: Option<String>,
}

/// Asks kube-apiserver who a user is and what they may do. Clones share the cache.
#[derive(Clone)]
pub struct Delegation {
    client: Client,
    granted: Arc<Mutex<HashMap<AccessRequest, (bool, Instant)>>>,
}

impl Delegation {
    /// Uses this client.
    pub fn new(client: Client) -> Self {
        Self { client, granted: Arc::default() }
    }

    /// The user of a request: named by the front proxy, or identified by a token.
    pub async fn user(
        &self,
        front_proxy: Option<&FrontProxy>,
        headers: &HeaderMap,
    ) -> Result<User, ApiError> {
        if let Some(front_proxy) = front_proxy {
            return front_proxy.user(headers).ok_or_else(ApiError::unauthorized);
        }
        let token = bearer(headers).ok_or_else(ApiError::unauthorized)?;
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews = Api::<TokenReview>::all(self.client.clone());
        let status = ask(reviews.create(&PostParams::default(), &review)).await?.status.unwrap_or_default();
        let known = status.user.filter(|_| status.authenticated == Some(true));
        let known = known.ok_or_else(ApiError::unauthorized)?;
        Ok(User {
            name: known.username.ok_or_else(ApiError::unauthorized)?,
            uid: known.uid,
            groups: known.groups.unwrap_or_default(),
            extra: known.extra.unwrap_or_default(),
        })
    }

    /// Returns an error unless the user may do that.
    pub async fn authorize(&self, user: &User, verb: Verb, place: &ResourcePath) -> Result<(), ApiError> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let request = AccessRequest {
            user: user.clone(),
            verb: verb.name(),
            version: place.version.name(),
            namespace: place.namespace.clone(),
            name: place.name.clone(),
        };
        let allowed = match self.remembered(&request) {
            Some(allowed) => allowed,
            None => self.review(request).await?,
        };
        if allowed { Ok(()) } else { Err(ApiError::forbidden(&user.name, verb.name())) }
    }

    async fn review(&self, request: AccessRequest) -> Result<bool, ApiError> {
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let review = SubjectAccessReview { spec: request.spec(), ..SubjectAccessReview::default() };
        let answer = ask(reviews.create(&PostParams::default(), &review)).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        if granted.len() >= CACHE_SIZE {
            granted.clear();
        }
        granted.insert(request, (allowed, Instant::now()));
        Ok(allowed)
    }

    fn remembered(&self, request: &AccessRequest) -> Option<bool> {
        let granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        granted.get(request).filter(|(_, heard)| heard.elapsed() < CACHE_FOR).map(|(allowed, _)| *allowed)
    }
}

impl AccessRequest {
    fn spec(&self) -> SubjectAccessReviewSpec {
        let attributes = ResourceAttributes {
            verb: Some(self.verb.to_owned()),
            group: Some(GROUP.to_owned()),
            version: Some(self.version.to_owned()),
            resource: Some(RESOURCE.to_owned()),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            ..ResourceAttributes::default()
        };
        let user = self.user.clone();
        SubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            user: Some(user.name),
            uid: user.uid,
            groups: Some(user.groups),
            extra: Some(user.extra),
            ..SubjectAccessReviewSpec::default()
        }
    }
}

/// The bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// Waits for a review. If kube-apiserver cannot be asked, the client may retry.
async fn ask<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    match tokio::time::timeout(REVIEW_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            Err(ApiError::unavailable(format!("cannot ask kube-apiserver for authorization: {error}")))
        }
        Err(_) => Err(ApiError::unavailable("cannot ask kube-apiserver for authorization: timed out")),
    }
}
