//! Keepers on an API server in memory, which has one Secret.

use std::collections::BTreeSet;
use std::sync::MutexGuard;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use jiff::SignedDuration;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::certificates::rotation::{AuthorityId, Role};
use crate::certificates::serving::NotServing;
use crate::certificates::trust::CrdTrust;

/// An API server with at most one Secret.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    secret: Option<Value>,
    version: u64,
    writes: u32,
    down: bool,
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect().await?.to_bytes();
                // Requests of several replicas mix.
                tokio::task::yield_now().await;
                let (status, answer) = server.state().answer(&method, &body);
                let response =
                    Response::builder().status(status).body(Full::new(Bytes::from(answer.to_string())));
                response
                    .map_err(kube::Error::HttpError)
                    .map_err(Box::<dyn std::error::Error + Send + Sync>::from)
            }
        });
        kube::Client::new(service, "restow-system")
    }

    fn keeper(&self) -> CertificateKeeper {
        let names = BTreeSet::from(["webhook.restow-system.svc".to_owned()]);
        let settings = CertificateSettings {
            namespace: "restow-system".to_owned(),
            secret: "webhook".to_owned(),
            foreign: false,
            wanted: Wanted { names, ..Wanted::default() },
            check_every: Duration::from_secs(30),
        };
        CertificateKeeper::new(self.client(), settings, Arc::default())
    }

    /// What the Secret has.
    fn kept(&self) -> Certificates {
        let secret: Secret = serde_json::from_value(self.state().secret.clone().unwrap()).unwrap();
        match secret::read(&secret, false).unwrap() {
            Found::Own(kept) => *kept,
            other => panic!("{other:?}"),
        }
    }
}

fn failure(code: StatusCode) -> (StatusCode, Value) {
    (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16()}))
}

impl State {
    fn answer(&mut self, method: &Method, body: &[u8]) -> (StatusCode, Value) {
        if self.down {
            return failure(StatusCode::FORBIDDEN);
        }
        match (method, &self.secret) {
            (&Method::GET, Some(secret)) => (StatusCode::OK, secret.clone()),
            (&Method::POST, None) => self.store(body),
            (&Method::POST, Some(_)) => failure(StatusCode::CONFLICT),
            (&Method::PUT, Some(stored)) => {
                let sent: Value = serde_json::from_slice(body).unwrap();
                if sent["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"] {
                    return failure(StatusCode::CONFLICT);
                }
                self.store(body)
            }
            _ => failure(StatusCode::NOT_FOUND),
        }
    }

    fn store(&mut self, body: &[u8]) -> (StatusCode, Value) {
        let mut secret: Value = serde_json::from_slice(body).unwrap();
        self.version += 1;
        self.writes += 1;
        secret["metadata"]["resourceVersion"] = json!(self.version.to_string());
        secret["metadata"]["uid"] = json!("u");
        self.secret = Some(secret.clone());
        (StatusCode::OK, secret)
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

fn roles(kept: &Certificates) -> Vec<Role> {
    kept.authorities.iter().map(|authority| authority.role).collect()
}

fn ids(kept: &Certificates) -> BTreeSet<AuthorityId> {
    kept.authorities.iter().map(|authority| authority.id.clone()).collect()
}

#[tokio::test]
async fn replicas_that_start_at_once_serve_the_same_certificate() {
    let server = Server::default();
    let keepers: Vec<CertificateKeeper> = (0..5).map(|_| server.keeper()).collect();
    let all = futures::future::join_all(keepers.iter().map(|keeper| keeper.refresh(now()))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let served: BTreeSet<_> = keepers.iter().map(|keeper| keeper.serving.id()).collect();
    assert_eq!((served.len(), server.state().writes), (1, 1));
    assert_eq!(roles(&server.kept()), [Role::Signing]);
    // The leaf is renewed by one of them, too.
    let all = futures::future::join_all(keepers.iter().map(|keeper| keeper.refresh(now() + days(25)))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let renewed: BTreeSet<_> = keepers.iter().map(|keeper| keeper.serving.id()).collect();
    assert_eq!((renewed.len(), server.state().writes, renewed == served), (1, 2, false));
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_keeps_the_certificate_until_it_expires() {
    let server = Server::default();
    let keeper = server.keeper();
    assert_eq!(keeper.serving.check(now()), Err(NotServing::None));
    keeper.refresh(now()).await.unwrap();
    let served = keeper.serving.id();
    server.state().down = true;
    let error = keeper.refresh(now() + days(25)).await.unwrap_err();
    assert!(matches!(error, CertificateError::Secret(_)), "{error}");
    assert_eq!((keeper.serving.id(), keeper.serving.check(now() + days(25))), (served, Ok(())));
    assert_eq!(keeper.serving.check(now() + days(30)), Err(NotServing::Expired(now() + days(30))));
    server.state().down = false;
    keeper.refresh(now() + days(30)).await.unwrap();
    assert_eq!(keeper.serving.check(now() + days(30)), Ok(()));
}

#[tokio::test]
async fn a_deleted_secret_is_restored_from_memory_and_a_new_authority_is_introduced() {
    let server = Server::default();
    let keepers = [server.keeper(), server.keeper()];
    for keeper in &keepers {
        keeper.refresh(now()).await.unwrap();
    }
    let (served, before) = (keepers[0].serving.id(), ids(&server.kept()));
    server.state().secret = None;
    let all = futures::future::join_all(keepers.iter().map(|keeper| keeper.refresh(now()))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert!(keepers.iter().all(|keeper| keeper.serving.id() == served), "the certificate is still trusted");
    let kept = server.kept();
    assert_eq!(roles(&kept), [Role::Signing, Role::Next]);
    assert!(ids(&kept).is_superset(&before));
}

#[tokio::test]
async fn a_damaged_secret_is_filled_again_and_keeps_what_others_put_into_it() {
    let server = Server::default();
    let keeper = server.keeper();
    keeper.refresh(now()).await.unwrap();
    let served = keeper.serving.id();
    if let Some(secret) = &mut server.state().secret {
        secret["data"] = json!({"theirs": "c3RheXM=", "tls.crt": "", "tls.key": ""});
    }
    keeper.refresh(now()).await.unwrap();
    assert_eq!(keeper.serving.id(), served);
    assert_eq!(server.state().secret.as_ref().unwrap()["data"]["theirs"], "c3RheXM=");
    // A replica that has nothing in memory makes new ones.
    if let Some(secret) = &mut server.state().secret {
        secret["data"] = json!({});
    }
    let fresh = server.keeper();
    fresh.refresh(now()).await.unwrap();
    assert_ne!(fresh.serving.id(), served);
}

#[tokio::test]
async fn expired_certificates_are_replaced_at_once() {
    let server = Server::default();
    server.keeper().refresh(now()).await.unwrap();
    let before = ids(&server.kept());
    let late = now() + days(400);
    let keeper = server.keeper();
    keeper.refresh(late).await.unwrap();
    assert_eq!(keeper.serving.check(late), Ok(()));
    let kept = server.kept();
    assert_eq!(roles(&kept), [Role::Signing]);
    assert!(ids(&kept).is_disjoint(&before));
}

#[tokio::test]
async fn a_requested_rotation_waits_for_every_crd() {
    let server = Server::default();
    let keeper = server.keeper();
    keeper.refresh(now()).await.unwrap();
    if let Some(secret) = &mut server.state().secret {
        secret["metadata"]["annotations"] = json!({ROTATE: "", "theirs": "stays"});
    }
    keeper.refresh(now()).await.unwrap();
    let kept = server.kept();
    assert_eq!(roles(&kept), [Role::Signing, Role::Next]);
    let annotations = server.state().secret.as_ref().unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations, json!({"theirs": "stays"}), "the request is taken");

    let start = restow_clock::Instant::now();
    let settle = Wanted::default().lifetimes.settle;
    let crd = |authorities| vec![CrdTrust { name: "widgets.example.com".to_owned(), authorities }];
    let old = BTreeSet::from([kept.authorities[0].id.clone()]);
    for (seconds, crds, expected) in [
        (0, crd(old), [Role::Signing, Role::Next]),
        (1, crd(ids(&kept)), [Role::Signing, Role::Next]),
        (settle.as_secs(), crd(ids(&kept)), [Role::Signing, Role::Next]),
        (settle.as_secs() + 1, crd(ids(&kept)), [Role::Retired, Role::Signing]),
    ] {
        keeper.trust.observe(start + Duration::from_secs(seconds), &ids(&kept), crds);
        keeper.refresh(now()).await.unwrap();
        assert_eq!(roles(&server.kept()), expected, "after {seconds} s");
    }
    let retired = server.kept().authorities.remove(0);
    assert!(retired.material.key.is_none(), "its key is not needed any more");
}

#[tokio::test]
async fn a_foreign_secret_is_served_and_never_written() {
    let server = Server::default();
    server.keeper().refresh(now()).await.unwrap();
    let before = {
        let mut state = server.state();
        let secret = state.secret.as_mut().unwrap();
        secret["metadata"]["labels"] = json!({});
        secret["metadata"]["annotations"] = json!({ROTATE: ""});
        (state.secret.clone(), state.writes)
    };
    let keeper = server.keeper();
    // Even when it has expired.
    keeper.refresh(now() + days(400)).await.unwrap();
    assert_eq!(keeper.serving.check(now()), Ok(()));
    let after = {
        let state = server.state();
        (state.secret.clone(), state.writes)
    };
    assert_eq!(after, before);
    let mut keeper = server.keeper();
    keeper.settings.foreign = true;
    server.state().secret = None;
    let error = keeper.refresh(now()).await.unwrap_err();
    assert!(matches!(error, CertificateError::NotFound), "{error}");
    assert!(server.state().secret.is_none());
}
