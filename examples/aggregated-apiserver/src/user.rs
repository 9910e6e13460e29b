//! Users and what they may do: kube-apiserver knows both, and is asked.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::failure::Failure;
use crate::front_proxy::FrontProxy;
use crate::request::{Place, Verb};
use crate::ship::{GROUP, RESOURCE};

/// How long an answer holds.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How many answers are kept at most.
const MANY: usize = 4096;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Who may do everything, without being asked about: as in Kubernetes' own servers.
const MASTERS: &str = "system:masters";

/// Who sends a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// What else is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Something somebody wants to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wish {
    user: User,
    verb: &'static str,
    version: &'static str,
    namespace: Option<String>,
    name: Option<String>,
}

/// Asks kube-apiserver; clones share what they have heard.
#[derive(Clone)]
pub struct Delegation {
    client: Client,
    granted: Arc<Mutex<HashMap<Wish, (bool, Instant)>>>,
}

impl Delegation {
    /// Asks through this client.
    pub fn new(client: Client) -> Self {
        Self { client, granted: Arc::default() }
    }

    /// Who sends a request that came from the front proxy, or from anybody else with a token.
    pub async fn user(&self, front_proxy: Option<&FrontProxy>, headers: &HeaderMap) -> Result<User, Failure> {
        if let Some(front_proxy) = front_proxy {
            return front_proxy.user(headers).ok_or_else(Failure::unauthorized);
        }
        let token = bearer(headers).ok_or_else(Failure::unauthorized)?;
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews = Api::<TokenReview>::all(self.client.clone());
        let status = ask(reviews.create(&PostParams::default(), &review)).await?.status.unwrap_or_default();
        let known = status.user.filter(|_| status.authenticated == Some(true));
        let known = known.ok_or_else(Failure::unauthorized)?;
        Ok(User {
            name: known.username.ok_or_else(Failure::unauthorized)?,
            uid: known.uid,
            groups: known.groups.unwrap_or_default(),
            extra: known.extra.unwrap_or_default(),
        })
    }

    /// Fails unless the user may do that.
    pub async fn authorize(&self, user: &User, verb: Verb, place: &Place) -> Result<(), Failure> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let wish = Wish {
            user: user.clone(),
            verb: verb.name(),
            version: place.version.name(),
            namespace: place.namespace.clone(),
            name: place.name.clone(),
        };
        let allowed = match self.remembered(&wish) {
            Some(allowed) => allowed,
            None => self.review(wish).await?,
        };
        if allowed { Ok(()) } else { Err(Failure::forbidden(&user.name, verb.name())) }
    }

    async fn review(&self, wish: Wish) -> Result<bool, Failure> {
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let review = SubjectAccessReview { spec: wish.spec(), ..SubjectAccessReview::default() };
        let answer = ask(reviews.create(&PostParams::default(), &review)).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        if granted.len() >= MANY {
            granted.clear();
        }
        granted.insert(wish, (allowed, Instant::now()));
        Ok(allowed)
    }

    fn remembered(&self, wish: &Wish) -> Option<bool> {
        let granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        granted.get(wish).filter(|(_, heard)| heard.elapsed() < REMEMBERED).map(|(allowed, _)| *allowed)
    }
}

impl Wish {
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

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// Waits for an answer. Who cannot be asked has not refused: the request may be sent again.
async fn ask<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            Err(Failure::unavailable(format!("kube-apiserver does not tell who may do that: {error}")))
        }
        Err(_) => Err(Failure::unavailable("kube-apiserver does not tell who may do that: no answer")),
    }
}
