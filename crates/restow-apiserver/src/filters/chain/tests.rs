use std::io::Write;
use std::sync::Mutex;

use futures::{StreamExt as _, stream};
use http::StatusCode;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::auth::authentication::Tokens;
use crate::auth::rbac::{BootstrapObject, Kind, LivePolicy, Policy, bootstrap};

fn policy() -> Policy {
    let mut policy = Policy::default();
    for BootstrapObject { kind, name, object } in bootstrap() {
        policy.set(kind, "", &name, Some(object.to_string().as_bytes()));
    }
    let role = json!({"rules": [
        {"verbs": ["get", "list", "create"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]},
    ]});
    policy.set(Kind::ClusterRole, "", "pods", Some(role.to_string().as_bytes()));
    let binding = json!({
        "subjects": [{"kind": "User", "name": "alice"}], "roleRef": {"kind": "ClusterRole", "name": "pods"},
    });
    policy.set(Kind::ClusterRoleBinding, "", "alice", Some(binding.to_string().as_bytes()));
    policy
}

fn chain(in_flight_limits: InFlightLimits, audit: Audit) -> FilterChain {
    let mut tokens = Tokens::default();
    tokens.insert("admin", User::admin());
    tokens.insert("alice", User::known("alice", [""; 0]));
    let access = Access { tokens, policy: LivePolicy::fixed(policy()) };
    FilterChain::new(Arc::new(access), in_flight_limits, audit)
}

/// A handler that returns the user, whether there is a token, and the length of the body.
async fn describe_request(request: Request<Bytes>) -> Result<Response<Body>, Infallible> {
    let Sender(user) = request.extensions().get::<Sender>().unwrap();
    let token = request.headers().contains_key(header::AUTHORIZATION);
    if request.uri().path().ends_with("/panic") {
        panic!("as it was asked to");
    }
    let text = format!("{} {token} {}", user.name, request.body().len());
    let mut response = Response::new(Body::from(Bytes::from(text)));
    response.extensions_mut().insert(CreatedName("made".to_owned()));
    Ok(response)
}

fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(Bytes::from_static(b"body"))).unwrap()
}

async fn text(response: Response<PermitBody>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn outcome(chain: &FilterChain, method: &str, uri: &str, headers: &[(&str, &str)]) -> String {
    let response = chain.handle(request(method, uri, headers), tower::service_fn(describe_request)).await;
    let code = response.status().as_u16();
    let text = text(response).await;
    match serde_json::from_str::<Value>(&text) {
        Ok(status) => format!("{code} {}", status["message"].as_str().unwrap()),
        Err(_) => format!("{code} {text}"),
    }
}

/// Method, address, headers and outcome.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);

const ALICE: (&str, &str) = ("authorization", "Bearer alice");
const ADMIN: (&str, &str) = ("authorization", "Bearer admin");

#[tokio::test]
async fn requests_are_authenticated_and_authorized() {
    let chain = chain(InFlightLimits::default(), Audit::off());
    let cannot = |verb: &str, resource: &str| {
        format!(
            "403 {resource} is forbidden: User \"alice\" cannot {verb} resource \"{resource}\" in API group \"\" \
             at the cluster scope"
        )
    };
    let (nodes, secrets) = (cannot("list", "nodes"), cannot("watch", "secrets"));
    let cases: &[Case<'_>] = &[
        ("GET", "/healthz", &[], "200 system:anonymous false 0"),
        ("GET", "/metrics", &[], "403 forbidden: User \"system:anonymous\" cannot get path \"/metrics\""),
        ("GET", "/api/v1/pods", &[("authorization", "Bearer nobody")], "401 Unauthorized"),
        ("GET", "/healthz", &[("authorization", "Bearer nobody")], "401 Unauthorized"),
        ("GET", "/api/v1/pods", &[ALICE], "200 alice false 0"),
        ("GET", "/apis", &[ALICE], "200 alice false 0"),
        ("GET", "/api/v1/nodes", &[ALICE], &nodes),
        ("GET", "/api/v1/secrets?watch=1", &[ALICE], &secrets),
        ("DELETE", "/any/path", &[ADMIN], "200 restow:admin false 4"),
        (
            "GET",
            "/api/v1/pods",
            &[ALICE, ("impersonate-user", "restow:admin")],
            "403 users \"restow:admin\" is forbidden: User \"alice\" cannot impersonate resource \"users\" \
             in API group \"\" at the cluster scope",
        ),
        ("GET", "/healthz", &[ALICE, ("impersonate-user", "bob")], "200 bob false 0"),
        (
            "GET",
            "/api/v1/pods",
            &[ALICE, ("impersonate-user", "bob")],
            "403 pods is forbidden: User \"bob\" cannot list resource \"pods\" in API group \"\" \
             at the cluster scope",
        ),
        (
            "GET",
            "/healthz",
            &[ALICE, ("impersonate-user", "bob"), ("impersonate-group", "system:masters")],
            "403 groups \"system:masters\" is forbidden: User \"alice\" cannot impersonate resource \"groups\" \
             in API group \"\" at the cluster scope",
        ),
        ("GET", "/api/v1/pods", &[ADMIN, ("impersonate-user", "alice")], "200 alice false 0"),
        (
            "GET",
            "/api/v1/pods",
            &[ADMIN, ("impersonate-group", "x")],
            "400 requested groups, a uid or extra values to impersonate without a user",
        ),
        (
            "GET",
            "/healthz",
            &[("impersonate-user", "bob")],
            "403 users \"bob\" is forbidden: User \"system:anonymous\" cannot impersonate resource \"users\" \
             in API group \"\" at the cluster scope",
        ),
        ("GET", "/panic", &[ADMIN], "500 Internal error occurred: the server has a bug; see its log"),
    ];
    for (method, uri, headers, expected) in cases {
        assert_eq!(outcome(&chain, method, uri, headers).await, *expected, "{method} {uri} {headers:?}");
    }
}

#[tokio::test]
async fn a_request_counts_as_in_flight_until_its_response_is_sent() {
    let in_flight_limits = InFlightLimits { mutating: 1, read_only: 1, watches: 1 };
    let chain = chain(in_flight_limits, Audit::off());
    let large = tower::service_fn(|_: Request<Bytes>| async {
        Ok::<_, Infallible>(Response::new(Body::from(Bytes::from(vec![b' '; 1 << 20]))))
    });
    for (method, uri) in
        [("POST", "/api/v1/namespaces/a/pods"), ("GET", "/api/v1/pods"), ("GET", "/api/v1/pods?watch=1")]
    {
        // A small response holds no permit.
        let small = chain.handle(request(method, uri, &[ADMIN]), tower::service_fn(describe_request)).await;
        let first = chain.handle(request(method, uri, &[ADMIN]), large).await;
        assert_eq!((small.status(), first.status()), (StatusCode::OK, StatusCode::OK));
        let second = chain.handle(request(method, uri, &[ADMIN]), tower::service_fn(describe_request)).await;
        assert_eq!(second.status(), 429, "{method} {uri}");
        assert_eq!(second.headers()[header::RETRY_AFTER], "1");
        let status: Value = serde_json::from_str(&text(second).await).unwrap();
        assert_eq!(status["reason"], "TooManyRequests");
        assert!(outcome(&chain, "GET", "/healthz", &[]).await.starts_with("200"));
        text(first).await;
        let third = chain.handle(request(method, uri, &[ADMIN]), tower::service_fn(describe_request)).await;
        assert_eq!(third.status(), 200);
    }
}

#[tokio::test]
async fn every_request_but_a_watch_times_out() {
    const REQUEST_TIMEOUT: Duration = Duration::from_millis(10);
    let mut chain = chain(InFlightLimits::default(), Audit::off());
    Arc::get_mut(&mut chain.0).unwrap().timeout = REQUEST_TIMEOUT;
    let stuck = tower::service_fn(|_: Request<Bytes>| async {
        tokio::time::sleep(3 * REQUEST_TIMEOUT).await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let late = chain.handle(request("GET", "/api/v1/pods", &[ADMIN]), stuck).await;
    assert_eq!(late.status(), 504);
    let watch = chain.handle(request("GET", "/api/v1/pods?watch=1", &[ADMIN]), stuck).await;
    assert_eq!(watch.status(), 200);
}

#[tokio::test]
async fn a_slow_body_takes_no_in_flight_permit() {
    let in_flight_limits = InFlightLimits { mutating: 1, read_only: 1, watches: 1 };
    let chain = chain(in_flight_limits, Audit::off());
    let slow = |method: &str, uri: &str, (name, value): (&str, &str)| {
        let start = stream::iter([Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"{")))]);
        let body = StreamBody::new(start.chain(stream::pending()));
        Request::builder().method(method).uri(uri).header(name, value).body(body).unwrap()
    };
    // The body of a read-only request is not awaited.
    for uri in ["/healthz", "/version", "/api/v1/pods", "/api/v1/pods?watch=1"] {
        let answer =
            chain.handle(slow("GET", uri, ADMIN), tower::service_fn(describe_request)).now_or_never();
        assert_eq!(answer.map(|answer| answer.status()), Some(StatusCode::OK), "{uri}");
    }
    let pods = "/api/v1/namespaces/a/pods";
    let mut first = Box::pin(chain.handle(slow("POST", pods, ALICE), tower::service_fn(describe_request)));
    assert!(futures::poll!(&mut first).is_pending());
    assert!(outcome(&chain, "POST", pods, &[ADMIN]).await.starts_with("200"));
}

#[tokio::test]
async fn large_bodies_are_refused() {
    let chain = chain(InFlightLimits::default(), Audit::off());
    let body = Full::new(Bytes::from(vec![b' '; limits::BODY + 1]));
    let request = Request::post("/api/v1/namespaces/a/pods").header(ADMIN.0, ADMIN.1).body(body).unwrap();
    let response = chain.handle(request, tower::service_fn(describe_request)).await;
    assert_eq!(response.status(), 413);
    let status: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(
        (status["kind"].as_str(), status["reason"].as_str()),
        (Some("Status"), Some("RequestEntityTooLarge"))
    );
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn writes_are_audited_and_reads_are_not() {
    let lines = Lines::default();
    let audit = Audit::to(lines.clone()).unwrap();
    let chain = chain(InFlightLimits::default(), audit.clone());
    let pods = "/api/v1/namespaces/a/pods";
    for (method, uri, headers) in [
        ("GET", pods, &[ALICE][..]),
        ("POST", pods, &[ALICE, ("audit-id", "mine"), ("user-agent", "test")]),
        ("DELETE", "/api/v1/namespaces/a/pods/x", &[ALICE]),
        ("PATCH", "/api/v1/namespaces/a/pods/x/status", &[ADMIN, ("impersonate-user", "alice")]),
        ("PUT", "/api/v1/namespaces/a/secrets/s", &[("authorization", "Bearer nobody")]),
        ("GET", "/healthz", &[]),
    ] {
        let response = chain.handle(request(method, uri, headers), tower::service_fn(describe_request)).await;
        assert!(response.headers().contains_key("audit-id"));
    }
    tokio::task::spawn_blocking(move || audit.flush()).await.unwrap();
    let written = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let events: Vec<String> = written
        .lines()
        .map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            assert!(!line.contains("body") && !line.contains("Bearer"));
            let text =
                |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
            let fields = [
                "/user/username",
                "/impersonatedUser/username",
                "/verb",
                "/objectRef/resource",
                "/objectRef/subresource",
                "/objectRef/namespace",
                "/objectRef/name",
            ];
            format!("{} {}", fields.map(text).join(" "), event["responseStatus"]["code"])
        })
        .collect();
    assert_eq!(
        events,
        [
            "alice - create pods - a made 200",
            "alice - delete pods - a x 403",
            "restow:admin alice patch pods status a x 403",
            "system:anonymous - update secrets - a s 401",
        ]
    );
    assert!(written.lines().next().unwrap().contains("\"auditID\":\"mine\""));
}

proptest! {
    #[test]
    fn no_request_panics(
        method in "[A-Z]{1,7}",
        uri in "/[ -~]{0,40}",
        name in "(authorization|impersonate-(user|group|uid|extra-[a-z%]{0,4})|audit-id|user-agent)",
        value in proptest::collection::vec(any::<u8>(), 0..24),
        body in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let request = Request::builder().method(method.as_str()).uri(uri).header(name, value.as_slice());
        if let Ok(request) = request.header(ADMIN.0, ADMIN.1).body(Full::new(Bytes::from(body))) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let chain = chain(InFlightLimits::default(), Audit::off());
            let code = runtime.block_on(chain.handle(request, tower::service_fn(describe_request))).status();
            prop_assert!([200, 400, 401, 403].contains(&code.as_u16()), "{code}");
        }
    }
}
