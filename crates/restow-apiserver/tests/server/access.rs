//! The server over the network: TLS, tokens, RBAC, limits and the audit log.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Config};
use restow_apiserver::{Audit, InFlightLimits, Network, Server, ServerSettings, Tokens};
use serde_json::{Value, json};

use crate::basics::{code, config_map};
use crate::definitions::{send_by as send, until};
use crate::memory::Memory;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A server on the network, with the users alice and bob besides its admin.
async fn listening(in_flight_limits: InFlightLimits, audit: Audit) -> Server {
    listening_on(Memory::new(), in_flight_limits, audit).await
}

async fn listening_on(store: Arc<Memory>, in_flight_limits: InFlightLimits, audit: Audit) -> Server {
    let mut tokens = Tokens::default();
    tokens.insert_file("alice,alice,1,dev\nbob,bob,2\n").unwrap();
    let network = Network { tokens, in_flight_limits, audit, ..Network::ephemeral().await.unwrap() };
    Server::start(ServerSettings { network: Some(network), ..ServerSettings::new(store) }).await.unwrap()
}

/// The client configuration of the admin, without retries, which would hide responses.
fn config(server: &Server) -> Config {
    let mut config = server.connection_info().unwrap().config().unwrap();
    config.default_retry = false;
    config
}

fn admin(server: &Server) -> Client {
    Client::try_from(config(server)).unwrap()
}

fn holder(server: &Server, token: &str) -> Client {
    let mut config = config(server);
    config.auth_info.token = Some(token.to_owned().into());
    Client::try_from(config).unwrap()
}

fn binding(kind: &str, name: &str, user: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    })
}

#[tokio::test]
async fn without_a_token_only_health_endpoints_are_allowed() {
    let server = listening(InFlightLimits::default(), Audit::off()).await;
    let mut config = config(&server);
    config.auth_info.token = None;
    let nobody = Client::try_from(config).unwrap();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        nobody.request_text(Request::get(path).body(vec![]).unwrap()).await.unwrap();
    }
    for path in ["/api", "/metrics", "/api/v1/namespaces"] {
        assert_eq!(code(send(&nobody, "GET", path, &Value::Null).await), 403, "{path}");
    }
    assert_eq!(code(send(&holder(&server, "wrong"), "GET", "/api", &Value::Null).await), 401);
    let mut other = server.connection_info().unwrap().config().unwrap();
    other.root_cert =
        Network::ephemeral().await.unwrap().connection_info().unwrap().config().unwrap().root_cert;
    let stranger = Client::try_from(other).unwrap();
    assert!(send(&stranger, "GET", "/version", &Value::Null).await.is_err(), "another authority");
    server.stop().await;
}

#[tokio::test]
async fn bindings_grant_and_revoke_permissions() {
    let server = listening(InFlightLimits::default(), Audit::off()).await;
    let (admin, alice) = (admin(&server), holder(&server, "alice"));
    let maps = Api::<ConfigMap>::namespaced(alice.clone(), "default");
    assert_eq!(code(maps.list(&ListParams::default()).await), 403);
    let path = format!("{RBAC}/namespaces/default/rolebindings");
    send(&admin, "POST", &path, &binding("RoleBinding", "alice", "alice", "edit")).await.unwrap();
    until("the binding to be in force", || async { maps.list(&ListParams::default()).await.is_ok() }).await;
    maps.create(&PostParams::default(), &config_map("a", "k", "v")).await.unwrap();
    let everywhere = Api::<ConfigMap>::all(alice.clone());
    assert_eq!(code(everywhere.list(&ListParams::default()).await), 403);
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "default"}}});
    let path_of_review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answered = send(&alice, "POST", path_of_review, &review).await.unwrap();
    assert_eq!(answered["status"]["allowed"], true, "{answered}");
    send(&admin, "DELETE", &format!("{path}/alice"), &Value::Null).await.unwrap();
    until("the binding to be gone", || async { maps.list(&ListParams::default()).await.is_err() }).await;
    server.stop().await;
}

#[tokio::test]
async fn users_cannot_grant_permissions_they_do_not_have() {
    let server = listening(InFlightLimits::default(), Audit::off()).await;
    let (admin, alice) = (admin(&server), holder(&server, "alice"));
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    send(&admin, "POST", &bindings, &binding("RoleBinding", "alice", "alice", "admin")).await.unwrap();
    until("the binding to be in force", || async {
        send(&alice, "GET", &bindings, &Value::Null).await.is_ok()
    })
    .await;
    let give = |role: &str| binding("RoleBinding", &format!("bob-{role}"), "bob", role);
    send(&alice, "POST", &bindings, &give("view")).await.unwrap();
    let refused = send(&alice, "POST", &bindings, &give("cluster-admin")).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("{refused:?}") };
    assert_eq!(status.code, 403);
    assert!(
        status.message.contains("attempting to grant RBAC permissions not currently held"),
        "{}",
        status.message
    );
    let role = |verb: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
            "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["configmaps"]}],
        })
    };
    let roles = format!("{RBAC}/namespaces/default/roles");
    assert_eq!(code(send(&alice, "POST", &roles, &role("escalate")).await), 403);
    send(&alice, "POST", &roles, &role("get")).await.unwrap();
    let more = json!({"rules": role("escalate")["rules"]});
    assert_eq!(code(send(&alice, "PATCH", &format!("{roles}/r"), &more).await), 403);
    server.stop().await;
}

#[tokio::test]
async fn a_permitted_user_can_impersonate_another() {
    let server = listening(InFlightLimits::default(), Audit::off()).await;
    let mut config = config(&server);
    config.auth_info.impersonate = Some("alice".to_owned());
    let as_alice = Client::try_from(config.clone()).unwrap();
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let who = send(&as_alice, "POST", path, &json!({})).await.unwrap();
    assert_eq!(who["status"]["userInfo"]["username"], "alice");
    let secrets = Api::<Secret>::all(as_alice);
    assert_eq!(code(secrets.list(&ListParams::default()).await), 403);
    config.auth_info.token = Some("bob".to_owned().into());
    let bob_as_alice = Client::try_from(config).unwrap();
    assert_eq!(code(send(&bob_as_alice, "POST", path, &json!({})).await), 403);
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_are_too_large_or_too_deep_are_refused() {
    let server = listening(InFlightLimits::default(), Audit::off()).await;
    let admin = admin(&server);
    let maps = Api::<ConfigMap>::namespaced(admin.clone(), "default");
    let large = config_map("large", "k", &"x".repeat(4 * 1024 * 1024));
    assert_eq!(code(maps.create(&PostParams::default(), &large).await), 413);
    maps.create(&PostParams::default(), &config_map("a", "k", "v")).await.unwrap();
    let mut deep = json!("x");
    for _ in 0..120 {
        deep = json!({"a": deep});
    }
    let path = "/api/v1/namespaces/default/configmaps/a";
    let refused = send(&admin, "PATCH", path, &json!({"data": deep})).await;
    assert!((400..500).contains(&code(refused)));
    let nested = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    for kind in ["application/json", "application/yaml"] {
        let request = Request::post("/api/v1/namespaces/default/configmaps").header("content-type", kind);
        let request = request.body(nested.clone().into_bytes()).unwrap();
        assert!((400..500).contains(&code(admin.request::<Value>(request).await)), "{kind}");
    }
    maps.get("a").await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn requests_over_the_in_flight_limit_get_429() {
    let in_flight_limits = InFlightLimits { mutating: 0, watches: 1, ..InFlightLimits::default() };
    let server = listening(in_flight_limits, Audit::off()).await;
    let admin = admin(&server);
    let maps = Api::<ConfigMap>::namespaced(admin.clone(), "default");
    let refused = maps.create(&PostParams::default(), &config_map("a", "k", "v")).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("{refused:?}") };
    assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
    assert_eq!(status.details.map(|details| details.retry_after_seconds), Some(1));
    maps.list(&ListParams::default()).await.unwrap();
    let watch = |request: Request<Vec<u8>>| admin.request_stream(request);
    let request = || Request::get("/api/v1/configmaps?watch=true").body(Vec::new()).unwrap();
    let first = watch(request()).await.unwrap();
    assert_eq!(code(watch(request()).await.map(drop)), 429);
    drop(first);
    until("the place of the first watch", || async { watch(request()).await.is_ok() }).await;
    server.stop().await;
}

#[tokio::test]
async fn audit_events_of_writes_have_no_content() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let server = listening(InFlightLimits::default(), Audit::to_file(&path).unwrap()).await;
    let secrets = Api::<Secret>::namespaced(admin(&server), "default");
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}}))
            .unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    secrets.get("s").await.unwrap();
    let _ = secrets.delete("s", &Default::default()).await.unwrap();
    server.stop().await;
    let written = std::fs::read_to_string(&path).unwrap();
    let events: Vec<String> = written
        .lines()
        .map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let object = &event["objectRef"];
            let fields =
                [&event["verb"], &object["resource"], &object["namespace"], &object["name"]].map(text);
            format!("{} {}", fields.join(" "), event["responseStatus"]["code"])
        })
        .collect();
    assert_eq!(events, ["create secrets default s 201", "delete secrets default s 200"]);
    assert!(!written.contains("hunter2") && !written.contains("aHVudGVyMg"));
}

#[tokio::test]
async fn many_warnings_do_not_break_clients() {
    let server = listening(InFlightLimits::default(), Audit::off()).await;
    let mut map = json!({"metadata": {"name": "a"}});
    for field in 0..200 {
        map[format!("field{field}")] = json!(1);
    }
    let request = Request::post("/api/v1/namespaces/default/configmaps?fieldValidation=Warn");
    let request = request.header("content-type", "application/json");
    let request = request.body(kube::client::Body::from(map.to_string().into_bytes())).unwrap();
    let answer = admin(&server).send(request).await.unwrap();
    assert_eq!(answer.status(), 201);
    let warnings: Vec<_> = answer.headers().get_all("warning").iter().collect();
    assert_eq!(
        (warnings.len(), warnings[49].to_str().unwrap()),
        (50, "299 - \"151 more warnings are not shown\"")
    );
    server.stop().await;
}

/// A client that leaves before the response does not free its in-flight permit.
#[tokio::test]
async fn a_write_stays_in_flight_after_its_client_has_left() {
    let store = Memory::new();
    let in_flight_limits = InFlightLimits { mutating: 1, ..InFlightLimits::default() };
    let server = listening_on(store.clone(), in_flight_limits, Audit::off()).await;
    store.hold(&["/registry/configmaps/"]);
    let post = PostParams::default();
    let (leaver, late) = (Api::namespaced(admin(&server), "default"), config_map("late", "k", "v"));
    tokio::select! {
        answered = leaver.create(&post, &late) => panic!("{answered:?}"),
        () = store.holds() => {}
    }
    drop(leaver);
    let secrets = Api::<Secret>::namespaced(admin(&server), "default");
    let other = Secret { metadata: late.metadata.clone(), ..Secret::default() };
    let placed = async {
        while secrets.create(&post, &other).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mut placed = std::pin::pin!(placed);
    let early = tokio::time::timeout(Duration::from_secs(1), placed.as_mut()).await;
    assert!(early.is_err(), "two writes at once");
    store.hold(&[]);
    placed.await;
    server.stop().await;
}
