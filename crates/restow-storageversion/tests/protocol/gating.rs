//! The gate in front of handlers: which requests pass, and what opens and closes it.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use restow_core::protocol::request::ResourcePath;
use restow_core::resource::inventory::Origin;
use restow_lease::Stop;
use restow_storageversion::gate::{GateLayer, Passage, Uncovered};
use restow_storageversion::readiness::NotReady;
use restow_storageversion::{Gate, Identity, Participation, Resource};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{Server, delete_lease, leases, registered, shared, versions, wait, widgets};

fn gate(group: &'static str) -> Gate {
    let widgets = Resource { name: widgets(group), versions: versions(group, "v1") };
    Gate::closed(vec![widgets], |target: &ResourcePath| match target.group.as_str() {
        "custom.example" => Origin::Custom,
        "aggregated.example" => Origin::Aggregated,
        _ => Origin::BuiltIn,
    })
}

/// Sends a request through the gate to handlers.
async fn send(layer: &GateLayer, request: Request<Full<Bytes>>) -> Response<Full<Bytes>> {
    let handlers =
        service_fn(async |_| Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"handled")))));
    layer.layer(handlers).oneshot(request).await.unwrap()
}

async fn code(layer: &GateLayer, method: Method, path: &str) -> u16 {
    let request = Request::builder().method(method).uri(path).body(Full::default()).unwrap();
    send(layer, request).await.status().as_u16()
}

#[tokio::test]
async fn a_closed_gate_answers_503_with_a_status_and_retry_after() {
    let request = Request::post("/apis/closed.example/v1/widgets").body(Full::default()).unwrap();
    let response = send(&gate("closed.example").layer(), request).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    let body: Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!((&body["kind"], &body["apiVersion"]), (&"Status".into(), &"v1".into()));
    assert_eq!((&body["reason"], &body["code"]), (&"ServiceUnavailable".into(), &503.into()));
    assert_eq!((&body["status"], &body["details"]["retryAfterSeconds"]), (&"Failure".into(), &1.into()));
}

#[tokio::test]
async fn a_closed_gate_lets_only_exempt_requests_pass() {
    const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    let gate = gate("passes.example");
    let (network, loopback) = (gate.layer(), gate.loopback_layer());
    for (method, path, over_network, over_loopback) in [
        (Method::POST, VERSIONS, 503, 200),
        (Method::GET, VERSIONS, 200, 200),
        (Method::GET, "/apis/passes.example/v1/widgets?watch=true", 200, 200),
        (Method::POST, "/apis/passes.example/v1/widgets?watch=true", 503, 503),
        (Method::PUT, "/apis/passes.example/v1/widgets/a/status", 503, 503),
        (Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews", 200, 200),
        (Method::PATCH, "/apis/custom.example/v1/namespaces/a/things/b", 200, 200),
        (Method::DELETE, "/apis/aggregated.example/v1/things/b", 200, 200),
        (Method::DELETE, "/apis/aggregated.example//v1/things/b", 503, 503),
        (Method::POST, "/apis/custom.example%2Fv1/v1/widgets", 503, 503),
    ] {
        assert_eq!(code(&network, method.clone(), path).await, over_network, "{method} {path}");
        assert_eq!(code(&loopback, method.clone(), path).await, over_loopback, "{method} {path} by itself");
    }
    // No header makes a request one of the server's own.
    let forged = Request::post(VERSIONS)
        .header("x-remote-user", "system:apiserver")
        .header("x-remote-group", "system:masters")
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, "Bearer loopback")
        .body(Full::default())
        .unwrap();
    assert_eq!(send(&network, forged).await.status(), StatusCode::SERVICE_UNAVAILABLE);
}

/// The passage that the handlers see.
async fn passage(layer: &GateLayer, method: Method, path: &str) -> Option<Passage> {
    let (told, mut handlers_were_told) = tokio::sync::mpsc::unbounded_channel();
    let handlers = service_fn(async |request: Request<Full<Bytes>>| {
        told.send(request.extensions().get::<Passage>().copied()).unwrap();
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let request = Request::builder().method(method).uri(path).body(Full::default()).unwrap();
    layer.layer(handlers).oneshot(request).await.unwrap();
    handlers_were_told.try_recv().ok().flatten()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gate_opens_only_if_all_its_resources_are_registered() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "covered.example");
    let server = Server::start(client, group, "a").await;
    let gate = gate(group);
    assert_eq!(gate.open(server.register("other.example", "v1").await), Err(Uncovered(widgets(group))));
    assert_eq!(gate.open(server.register(group, "v2").await), Err(Uncovered(widgets(group))));
    assert!(!gate.is_open());
    assert_eq!(gate.open(server.register(group, "v1").await), Ok(()));
    assert_eq!(gate.readiness().check(), Ok(()));
    for (path, expected) in [
        ("/apis/covered.example/v1/widgets", Passage::Open),
        ("/apis/internal.apiserver.k8s.io/v1alpha1/storageversions", Passage::Exempt),
    ] {
        assert_eq!(passage(&gate.loopback_layer(), Method::POST, path).await, Some(expected), "{path}");
    }
    // Without the Lease writes are refused, even if nobody closed the gate.
    server.identity.leave(&server.tenure).await;
    assert_eq!(gate.readiness().check(), Err(NotReady::Lapsed));
    assert_eq!(code(&gate.layer(), Method::POST, "/apis/covered.example/v1/widgets").await, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_ready_while_registered_and_again_after_it_lost_its_lease() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "life.example");
    let id = "apiserver-a.life.example";
    let mut identity = Identity::new(client.clone(), "restow-test", id);
    identity.renew_every = Duration::from_millis(200);
    let (gate, told) = (gate(group), CancellationToken::new());
    let (layer, readiness) = (gate.layer(), gate.readiness());
    assert_eq!(readiness.check(), Err(NotReady::Unregistered));
    assert_eq!(code(&layer, Method::POST, "/apis/life.example/v1/widgets").await, 503);
    let stop = Stop::from(told.clone());
    let participation =
        Participation { identity, client: client.clone(), gate: gate.clone(), has_custom: false };
    let life = tokio::spawn(async move { participation.run(&stop).await });

    tokio::time::timeout(Duration::from_secs(60), readiness.ready()).await.expect("readiness");
    assert_eq!(registered(&client, group).await, "a=v1: v1");
    assert_eq!(code(&layer, Method::POST, "/apis/life.example/v1/widgets").await, 200);

    let holder = async || {
        let lease = leases(&client).get_opt(id).await.unwrap();
        lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
    };
    let first = holder().await;
    delete_lease(&client, id).await;
    wait("another life", || async { !["", &first].contains(&holder().await.as_str()) }).await;
    wait("readiness", || async { readiness.check().is_ok() }).await;
    assert_eq!(registered(&client, group).await, "a=v1: v1");

    told.cancel();
    tokio::time::timeout(Duration::from_secs(60), life).await.expect("an end").unwrap().unwrap();
    assert_eq!(holder().await, "");
    assert_eq!(readiness.check(), Err(NotReady::Unregistered));
    assert_eq!(code(&layer, Method::POST, "/apis/life.example/v1/widgets").await, 503);
}
