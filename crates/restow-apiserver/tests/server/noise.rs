//! The server answers every request, however malformed, and keeps running.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use restow_apiserver::{Server, ServerSettings};
use serde_json::json;

use crate::memory::Memory;

const PATHS: &[&str] = &[
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/a",
    "/api/v1/namespaces/default/secrets/s",
    "/api/v1/namespaces/x",
    "/api/v1/events",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ws.e.com/status",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/b",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
    "/apis/e.com/v1/namespaces/default/ws/a",
    "/openapi/v3/apis/apps/v1",
    "/openapi/v2",
    "/version",
    "/readyz",
    "/metrics",
];

const TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    ";;,q=",
];

const BODIES: &[&str] = &[
    "",
    "{}",
    "[]",
    "null",
    "{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"x\",\"uid\":7,\"finalizers\":{}}}",
    "{\"metadata\":null,\"data\":{\"a\":1e999}}",
    "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\",\"generateName\":\"-\"}}",
    "{\"spec\":{\"group\":\"e.com\",\"versions\":[{}],\"names\":{\"plural\":\"ws\"},\"scope\":\"Cluster\"}}",
    "{\"rules\":[{\"verbs\":7}],\"roleRef\":[],\"subjects\":\"x\"}",
    "[{\"op\":\"copy\",\"from\":\"\",\"path\":\"/a\"},{\"op\":\"move\",\"from\":\"/a\",\"path\":\"/a/b\"}]",
    "[{\"op\":\"remove\",\"path\":\"/metadata\"},{\"op\":\"add\",\"path\":\"/~\",\"value\":{}}]",
    "{\"$patch\":\"replace\",\"$setElementOrder/a\":7,\"$deleteFromPrimitiveList/a\":{},\"$retainKeys\":7}",
    "a: &a [*a]",
    "a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c]\n",
    "--- \n...\n%YAML 9.9\n",
];

const QUERIES: &[&str] = &[
    "",
    "watch=1&timeoutSeconds=&resourceVersion=1",
    "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1",
    "limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8ifQ",
    "limit=99999999999999999999",
    "resourceVersion=99999999999999999999&resourceVersionMatch=Exact",
    "labelSelector=a+in+(,)&fieldSelector=metadata.name%3D%3D,",
    "labelSelector=%ff%fe&fieldSelector=%",
    "dryRun=All&fieldValidation=Strict&fieldManager=%00",
    "gracePeriodSeconds=-9223372036854775808&propagationPolicy=x&orphanDependents=?",
    "pretty&verbose",
];

/// Method, path, query, headers and body.
type Sent = (String, String, String, Vec<(String, Vec<u8>)>, Vec<u8>);

fn sent() -> impl Strategy<Value = Sent> {
    let method = prop_oneof![
        8 => prop::sample::select(&["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"][..]).prop_map(str::to_owned),
        1 => "[A-Z]{1,7}",
    ];
    let path = prop_oneof![
        6 => prop::sample::select(PATHS).prop_map(str::to_owned),
        1 => "(/[a-z%0-9.~;]{0,8}){1,9}",
        1 => (prop::sample::select(PATHS), "[/a-z%0-9.]{0,6}").prop_map(|(path, more)| format!("{path}{more}")),
    ];
    let query = prop_oneof![3 => prop::sample::select(QUERIES).prop_map(str::to_owned), 1 => "[a-zA-Z=&%,!+0-9.]{0,40}"];
    let kind =
        prop::sample::select(TYPES).prop_map(|kind| ("content-type".to_owned(), kind.as_bytes().to_vec()));
    let other = ("(accept|user-agent|impersonate-user)", prop::collection::vec(any::<u8>(), 0..16));
    let accept = prop::sample::select(
        &[
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ][..],
    )
    .prop_map(|accept| ("accept".to_owned(), accept.as_bytes().to_vec()));
    let headers = (kind, prop_oneof![accept, other]).prop_map(|(kind, other)| vec![kind, other]);
    let body = prop_oneof![
        4 => prop::sample::select(BODIES).prop_map(|body| body.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..64),
        1 => "[\\[\\]{}\":,a0\\\\ue]{0,32}".prop_map(String::into_bytes),
    ];
    (method, path, query, headers, body)
}

fn request((method, path, query, headers, body): Sent) -> Option<Request<kube::client::Body>> {
    let mut request = Request::builder().method(method.as_str()).uri(format!("{path}?{query}"));
    for (name, value) in headers {
        let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(&value)) else {
            continue;
        };
        request = request.header(name, value);
    }
    request.body(kube::client::Body::from(body)).ok()
}

/// The status code of a response, whose body is read completely unless it may be endless.
async fn code(server: &Server, request: Request<kube::client::Body>) -> u16 {
    let goes_on = request.uri().query().is_some_and(|query| query.contains("watch"));
    let response = server.client().send(request).await.expect("an answer");
    let code = response.status().as_u16();
    if goes_on && code == 200 {
        return code;
    }
    let body = tokio::time::timeout(std::time::Duration::from_secs(20), response.into_body().collect());
    let body: Bytes = body.await.expect("an end").map(|body| body.to_bytes()).unwrap_or_default();
    if code >= 400 && code != 404 && !body.is_empty() {
        assert!(body.starts_with(b"{") || code == 500, "{code} {body:?}");
    }
    code
}

#[tokio::test]
async fn every_request_is_answered() {
    let server = Server::start(ServerSettings::new(Memory::new())).await.unwrap();
    let mut runner = TestRunner::new(ProptestConfig { cases: 1, ..ProptestConfig::default() });
    let some =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}});
    let path = "/api/v1/namespaces/default/configmaps".to_owned();
    let first = request(("POST".to_owned(), path, String::new(), Vec::new(), some.to_string().into_bytes()));
    assert_eq!(code(&server, first.unwrap()).await, 201);
    for _ in 0..1500 {
        let sent = sent().new_tree(&mut runner).unwrap().current();
        let shown = format!("{sent:?}");
        let Some(request) = request(sent) else { continue };
        let answered = std::panic::AssertUnwindSafe(code(&server, request));
        let code = futures::FutureExt::catch_unwind(answered).await.unwrap_or_else(|_| panic!("{shown}"));
        assert!((200..500).contains(&code) || [500, 503, 504].contains(&code), "{code}: {shown}");
        assert!(code != 500, "a fault: {shown}");
    }
    server.stop().await;
}
