//! What each path answers.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use restow_webhook::Settings;
use serde_json::json;

use crate::fixture::{Obedient, Running, converters, review, widget};

#[tokio::test]
async fn reviews_are_answered_on_the_path_of_their_kind_and_on_the_common_one() {
    let server = Running::start(Settings::default()).await;
    let body = review(&[widget("a", json!({})), widget("b", json!({}))]);
    for mut client in [server.client().await, server.client2().await] {
        for path in ["/convert", "/convert/example.com/Widget"] {
            let response = client.review(path, &body).await;
            let names: Vec<_> = response["convertedObjects"]
                .as_array()
                .unwrap()
                .iter()
                .map(|o| &o["metadata"]["name"])
                .collect();
            assert_eq!(names, ["a", "b"], "{response}");
        }
        let response = client.review("/convert/other.com/Gadget", &body).await;
        let expected = "Widget a: this path is for Gadget.other.com, not for Widget.example.com";
        assert_eq!(response["result"]["message"], expected);
        assert_eq!(response["result"]["status"], "Failure");
    }
    server.end().await;
}

#[tokio::test]
async fn other_requests_are_refused_with_a_reason() {
    let server = Running::start(Settings::default()).await;
    let mut client = server.client().await;
    let cases = [
        (Method::GET, "/convert", "", StatusCode::METHOD_NOT_ALLOWED, "only POST"),
        (Method::POST, "/convert/", "", StatusCode::NOT_FOUND, "/convert/GROUP/KIND"),
        (Method::POST, "/", "", StatusCode::NOT_FOUND, "nothing at this path"),
        (Method::POST, "/convert", "{", StatusCode::BAD_REQUEST, "not a ConversionReview"),
        (Method::POST, "/convert", "{}", StatusCode::BAD_REQUEST, "missing field"),
        (
            Method::POST,
            "/convert",
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#,
            StatusCode::BAD_REQUEST,
            "found AdmissionReview of admission.k8s.io/v1",
        ),
    ];
    for (method, path, body, status, expected) in cases {
        let (found, text) = client.send(method, path, body).await;
        assert_eq!(found, status, "{path} {body}");
        assert!(text.contains(expected), "{text}");
    }
    let (_, metrics) = client.get("/metrics").await;
    assert!(metrics.contains(r#"restow_webhook_refused_requests_total{code="400"} 3"#), "{metrics}");
    server.end().await;
}

#[tokio::test]
async fn a_review_is_converted_by_one_set_of_converters_even_if_it_is_replaced_meanwhile() {
    let server = Running::start(Settings::default()).await;
    let mut client = server.client().await;
    let wait = json!({"wait": true});
    let body = review(&[widget("a", json!({})), widget("b", wait), widget("c", json!({}))]);
    let first = tokio::spawn(async move { client.review("/convert", &body).await });
    let server = server.came().await;
    server.live.replace(converters(Obedient::new("second").0));
    let mut client = server.client().await;
    let by = |response: &serde_json::Value| -> Vec<String> {
        let objects = response["convertedObjects"].as_array().unwrap().iter();
        objects.map(|object| object["metadata"]["labels"]["by"].as_str().unwrap().to_owned()).collect()
    };
    let second = client.review("/convert", &review(&[widget("a", json!({}))])).await;
    assert_eq!(by(&second), ["second"]);
    server.waiting.release.send(()).unwrap();
    assert_eq!(by(&first.await.unwrap()), ["first", "first", "first"]);
    server.end().await;
}

#[tokio::test]
async fn metrics_count_objects_and_failures_by_versions_that_converters_know() {
    let server = Running::start(Settings::default()).await;
    let mut client = server.client().await;
    client.review("/convert", &review(&[widget("a", json!({})), widget("b", json!({}))])).await;
    client.review("/convert", &review(&[widget("a", json!({"panic": true}))])).await;
    for number in 0..20 {
        let mut object = widget("a", json!({}));
        object["apiVersion"] = format!("example.com/v{}", 100 + number).into();
        client.review("/convert", &review(&[object.clone()])).await;
        object["kind"] = format!("Kind{number}").into();
        client.review("/convert", &review(&[object])).await;
    }
    let (status, metrics) = client.get("/metrics").await;
    assert_eq!(status, StatusCode::OK);
    let pair = r#"group="example.com",kind="Widget",from="v1",to="v2""#;
    let unknown = r#"group="unknown",kind="unknown",from="unknown",to="unknown""#;
    for line in [
        format!("restow_webhook_objects_total{{{pair}}} 2"),
        format!("restow_webhook_failures_total{{{pair},reason=\"panicked\"}} 1"),
        format!("restow_webhook_failures_total{{{unknown},reason=\"unknown_version\"}} 20"),
        format!("restow_webhook_failures_total{{{unknown},reason=\"unknown_kind\"}} 20"),
        r#"restow_webhook_review_duration_seconds_count{result="success"} 1"#.to_owned(),
        "restow_webhook_reviews_in_flight 0".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    assert!(!metrics.contains("v101") && !metrics.contains("Kind1"), "{metrics}");
    server.end().await;
}

#[tokio::test]
async fn an_operator_can_mount_its_own_handlers() {
    let handler = tower::service_fn(|request: Request<Full<Bytes>>| async move {
        let path = request.uri().path().to_owned();
        assert_ne!(path, "/admit/panic", "asked to panic");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!("{path} {}", body.len())))))
    });
    let mut settings = Settings::default();
    settings.limits.bytes = 1000;
    let server = Running::start_with(settings, |server| server.mount("/admit", handler)).await;
    let mut client = server.client2().await;
    let mut send = async |path: &str, body: &'static str| client.send(Method::POST, path, body).await;
    assert_eq!(send("/admit", "abc").await, (StatusCode::OK, "/admit 3".to_owned()));
    assert_eq!(send("/admit/widgets", "").await, (StatusCode::OK, "/admit/widgets 0".to_owned()));
    assert_eq!(send("/admitted", "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(send("/admit/panic", "").await.0, StatusCode::INTERNAL_SERVER_ERROR);
    let long: &'static str = Box::leak("x".repeat(1001).into_boxed_str());
    assert_eq!(send("/admit", long).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    server.end().await;
}

#[tokio::test]
async fn the_server_is_ready_when_all_its_gates_agree() {
    let ready = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let loaded = std::sync::Arc::clone(&ready);
    let server = Running::start_with(Settings::default(), |server| {
        server.ready_when(|| Ok(())).ready_when(move || {
            let loaded = loaded.load(std::sync::atomic::Ordering::SeqCst);
            if loaded { Ok(()) } else { Err("rules are being loaded".to_owned()) }
        })
    })
    .await;
    let mut client = server.client().await;
    let unready = (StatusCode::SERVICE_UNAVAILABLE, "rules are being loaded\n".to_owned());
    assert_eq!(client.get("/readyz").await, unready);
    assert_eq!(client.get("/healthz").await.0, StatusCode::OK);
    ready.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(client.get("/readyz").await.0, StatusCode::OK);
    server.end().await;
}
