//! Conversion webhooks: called over TLS, and their responses are checked.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use jiff::Timestamp;
use restow_apiserver::{CertificateAuthority, Server, ServerSettings, ServingCertificate, serve};
use restow_store::Store as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::basics::read;
use crate::definitions::{definition, send, until};
use crate::memory::Memory;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/widgets";
const V2: &str = "/apis/example.com/v2/namespaces/default/widgets";

/// A webhook that runs as long as its test.
struct Webhook {
    url: String,
    authority: String,
    calls: Arc<AtomicUsize>,
    _stop: DropGuard,
}

impl Webhook {
    /// A webhook with a given response to reviews.
    async fn start(answer: fn(&Value) -> Value) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("https://{}/convert", listener.local_addr().unwrap());
        let authority = CertificateAuthority::ephemeral(Timestamp::now()).unwrap();
        let pem = authority.pem();
        let serving =
            Arc::new(ServingCertificate::new(authority, Vec::<String>::new(), Timestamp::now()).unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let service = tower::service_fn(move |request: Request<Incoming>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                assert_eq!(request.uri().path(), "/convert");
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let answered = answer(&serde_json::from_slice(&body).unwrap());
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answered.to_string()))))
            }
        });
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, serving, service, stop.clone()));
        Self { url, authority: STANDARD.encode(pem), calls, _stop: stop.drop_guard() }
    }

    fn conversion(&self) -> Value {
        json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": {"url": self.url, "caBundle": self.authority},
        }})
    }
}

/// Converts `size` of v1 to `extent` of v2, and changes metadata that it must not change.
fn convert(review: &Value) -> Value {
    let desired = &review["request"]["desiredAPIVersion"];
    let mut objects = review["request"]["objects"].as_array().cloned().unwrap();
    for object in &mut objects {
        let (from, to) = if desired == "example.com/v2" { ("size", "extent") } else { ("extent", "size") };
        let spec = object["spec"].as_object_mut().unwrap();
        let value = spec.remove(from).unwrap_or_default();
        spec.insert(to.to_owned(), value);
        object["apiVersion"] = desired.clone();
        object["metadata"]["finalizers"] = json!(["x.example/webhook"]);
        object["metadata"]["annotations"] =
            json!({"converted": "to ".to_owned() + desired.as_str().unwrap()});
    }
    response(review, json!({"convertedObjects": objects, "result": {"status": "Success"}}))
}

fn response(review: &Value, mut response: Value) -> Value {
    response["uid"] = review["request"]["uid"].clone();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
}

async fn define(server: &Server, conversion: Value) {
    let mut sent = definition("v1");
    sent["spec"]["conversion"] = conversion;
    send(server, "POST", DEFINITIONS, &sent).await.unwrap();
    until("widgets are served", || async { send(server, "GET", V1, &json!({})).await.is_ok() }).await;
}

fn widget(version: &str, field: &str, name: &str) -> Value {
    let mut spec = json!({});
    spec[field] = json!(1);
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec,
    })
}

async fn refusal(server: &Server, method: &str, path: &str, body: &Value) -> (u16, String) {
    match send(server, method, path, body).await {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn objects_are_converted_both_ways() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    let webhook = Webhook::start(convert).await;
    define(&server, webhook.conversion()).await;
    send(&server, "POST", V1, &widget("v1", "size", "a")).await.unwrap();
    assert_eq!(webhook.calls.load(Ordering::SeqCst), 0);

    let seen = read(&server, &format!("{V2}/a")).await;
    assert_eq!(seen["spec"], json!({"extent": 1}));
    assert_eq!(seen["metadata"].get("finalizers"), None);
    assert_eq!(seen["metadata"]["annotations"], json!({"converted": "to example.com/v2"}));

    send(&server, "POST", V2, &widget("v2", "extent", "b")).await.unwrap();
    let key = "/registry/example.com/widgets/default/b";
    let stored: Value = serde_json::from_slice(&store.get(key).await.unwrap().entry.unwrap().value).unwrap();
    assert_eq!((&stored["apiVersion"], &stored["spec"]), (&json!("example.com/v1"), &json!({"size": 1})));

    let list = read(&server, V2).await;
    let extents: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["spec"]).collect();
    assert_eq!(extents, [&json!({"extent": 1}); 2]);
    server.stop().await;
}

#[tokio::test]
async fn the_message_of_a_failing_webhook_is_quoted() {
    let server = crate::basics::server().await;
    let refuse = |review: &Value| response(review, json!({"result": {"status": "Failure", "message": "no"}}));
    let webhook = Webhook::start(refuse).await;
    define(&server, webhook.conversion()).await;
    send(&server, "POST", V1, &widget("v1", "size", "a")).await.unwrap();
    let (code, message) = refusal(&server, "GET", &format!("{V2}/a"), &json!({})).await;
    let expected = "conversion webhook for example.com/v1, Kind=Widget failed: no";
    assert_eq!((code, message.as_str()), (500, expected));
    let (code, message) = refusal(&server, "POST", V2, &widget("v2", "extent", "b")).await;
    let expected = "conversion webhook for example.com/v2, Kind=Widget failed: no";
    assert_eq!((code, message.as_str()), (500, expected));
    server.stop().await;
}

#[tokio::test]
async fn webhooks_that_cannot_be_called_fail_the_request() {
    let server = crate::basics::server().await;
    let webhook = Webhook::start(convert).await;
    let stranger = CertificateAuthority::ephemeral(Timestamp::now()).unwrap().pem();
    let mut untrusted = webhook.conversion();
    untrusted["webhook"]["clientConfig"]["caBundle"] = json!(STANDARD.encode(stranger));
    define(&server, untrusted).await;
    send(&server, "POST", V1, &widget("v1", "size", "a")).await.unwrap();
    // The port was free a moment ago.
    let free = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let service =
        json!({"url": null, "service": {"namespace": "x", "name": "y"}, "caBundle": webhook.authority});
    let nobody = json!({"url": format!("https://{free}/convert"), "caBundle": webhook.authority});
    let post = |url: &str| format!("failed: Post \"{url}?timeout=30s\": ");
    for (config, expected) in [
        (Value::Null, post(&webhook.url)),
        (nobody, post(&format!("https://{free}/convert"))),
        (service, "failed: the service x/y".to_owned()),
    ] {
        if !config.is_null() {
            let change = json!({"spec": {"conversion": {"webhook": {"clientConfig": config}}}});
            send(&server, "PATCH", &format!("{DEFINITIONS}/widgets.example.com"), &change).await.unwrap();
        }
        until(&expected, || async {
            let (code, message) = refusal(&server, "GET", &format!("{V2}/a"), &json!({})).await;
            code == 500
                && message.starts_with("conversion webhook for example.com/v1, Kind=Widget")
                && message.contains(&expected)
        })
        .await;
    }
    assert_eq!(webhook.calls.load(Ordering::SeqCst), 0);
    server.stop().await;
}

#[tokio::test]
async fn an_endless_webhook_response_fails_the_request() {
    let server = crate::basics::server().await;
    let webhook = Webhook::start(|review| {
        let padding = "x".repeat(20 * 1024 * 1024);
        response(review, json!({"result": {"status": "Success", "message": padding}}))
    })
    .await;
    define(&server, webhook.conversion()).await;
    send(&server, "POST", V1, &widget("v1", "size", "a")).await.unwrap();
    let (code, message) = refusal(&server, "GET", &format!("{V2}/a"), &json!({})).await;
    assert_eq!(code, 500);
    assert!(message.contains("the webhook's answer has more than 1677"), "{message}");
    server.stop().await;
}
