//! Converters that panic, hang or break objects cost their own request only.

use std::time::Duration;

use http::StatusCode;
use restow_webhook::Settings;
use serde_json::json;

use crate::fixture::{LONG, Running, review, widget};

#[tokio::test]
async fn a_panic_is_the_error_of_its_request() {
    let server = Running::start(Settings { at_once: 1, ..Settings::default() }).await;
    let mut client = server.client().await;
    for _ in 0..5 {
        let response = client.review("/convert", &review(&[widget("bad", json!({"panic": true}))])).await;
        let expected = "Widget bad: the converter panicked; the log of the webhook has the message";
        assert_eq!(response["result"]["message"], expected);
    }
    let response = client.review("/convert", &review(&[widget("good", json!({}))])).await;
    assert_eq!(response["result"]["status"], "Success");
    server.end().await;
}

#[tokio::test]
async fn broken_metadata_is_an_error_that_names_the_field() {
    let server = Running::start(Settings::default()).await;
    let mut client = server.client().await;
    let response = client.review("/convert", &review(&[widget("w", json!({"rename": true}))])).await;
    let message = response["result"]["message"].as_str().unwrap();
    assert!(message.contains("changed metadata.name; only labels and annotations may change"), "{message}");
    server.end().await;
}

#[tokio::test]
async fn a_converter_that_does_not_return_costs_its_own_request_only() {
    let settings =
        Settings { at_once: 1, abandoned: 1, timeout: Duration::from_secs(1), ..Settings::default() };
    let server = Running::start(settings).await;
    let (mut hanging, mut other) = (server.client().await, server.client2().await);
    let body = review(&[widget("fine", json!({})), widget("hangs", json!({"wait": true}))]);
    let response = hanging.review("/convert", &body).await;
    assert_eq!(response["result"]["message"], "Widget hangs: the conversion took longer than 1s");
    // Its thread is abandoned, and another one takes its place.
    let good = review(&[widget("good", json!({}))]);
    assert_eq!(other.review("/convert", &good).await["result"]["status"], "Success");
    assert_eq!(other.get("/healthz").await.0, StatusCode::OK);
    // One more than may be abandoned: it keeps the only place.
    hanging.review("/convert", &body).await;
    let (status, text) = other.get("/healthz").await;
    assert_eq!((status, text.contains("restart")), (StatusCode::SERVICE_UNAVAILABLE, true));
    let (status, _) = other.send(http::Method::POST, "/convert", good.to_string()).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    let (_, metrics) = other.get("/metrics").await;
    assert!(metrics.contains("restow_webhook_abandoned_conversions 2"), "{metrics}");
    for _ in 0..2 {
        server.waiting.release.send(()).unwrap();
    }
    let healthy = async { while other.get("/healthz").await.0 != StatusCode::OK {} };
    tokio::time::timeout(LONG, healthy).await.expect("they have returned");
    assert_eq!(other.review("/convert", &good).await["result"]["status"], "Success");
    server.end().await;
}

#[tokio::test]
async fn a_conversion_stops_when_its_client_is_gone() {
    let server = Running::start(Settings { at_once: 1, abandoned: 0, ..Settings::default() }).await;
    let mut client = server.client().await;
    let wait = || json!({"wait": true});
    let body = review(&[widget("a", wait()), widget("b", wait())]);
    let asked = tokio::spawn(async move { client.review("/convert", &body).await });
    let server = server.came().await;
    asked.abort();
    drop(asked.await);
    let mut other = server.client().await;
    // It is noticed once the connection has closed; then the second object is not converted any more.
    let noticed =
        async { while !other.get("/metrics").await.1.contains("restow_webhook_abandoned_conversions 1") {} };
    tokio::time::timeout(LONG, noticed).await.unwrap();
    server.waiting.release.send(()).unwrap();
    let good = other.review("/convert", &review(&[widget("good", json!({}))])).await;
    assert_eq!(good["result"]["status"], "Success");
    assert!(server.waiting.came.try_recv().is_err(), "the second object was converted for nobody");
    server.end().await;
}

#[tokio::test]
async fn the_object_that_hangs_is_named_also_if_several_threads_share_its_review() {
    let settings = Settings { helpers: 8, timeout: Duration::from_secs(3), ..Settings::default() };
    let server = Running::start(settings).await;
    let mut client = server.client().await;
    let filler = "x".repeat(64 * 1024);
    let mut objects: Vec<_> =
        (0..60).map(|number| widget(&format!("w{number}"), json!({"filler": filler}))).collect();
    // The other threads go on to the last object.
    objects[0] = widget("hangs", json!({"wait": true}));
    let response = client.review("/convert", &review(&objects)).await;
    assert_eq!(response["result"]["message"], "Widget hangs: the conversion took longer than 3s");
    server.waiting.release.send(()).unwrap();
    objects[0] = widget("good", json!({}));
    let response = client.review("/convert", &review(&objects)).await;
    let converted = response["convertedObjects"].as_array().unwrap();
    let names: Vec<_> = converted.iter().map(|object| object["metadata"]["name"].clone()).collect();
    assert_eq!(names, objects.iter().map(|object| object["metadata"]["name"].clone()).collect::<Vec<_>>());
    server.end().await;
}
