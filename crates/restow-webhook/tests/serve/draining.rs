//! A server that is told to stop answers what is in flight.

use std::time::Duration;

use http::StatusCode;
use restow_webhook::Settings;
use serde_json::json;

use crate::fixture::{LONG, Running, review, widget};

#[tokio::test]
async fn readiness_fails_first_and_requests_are_served_meanwhile() {
    let server =
        Running::start(Settings { drain_delay: Duration::from_secs(3), ..Settings::default() }).await;
    let mut client = server.client().await;
    assert_eq!(client.get("/readyz").await.0, StatusCode::OK);
    server.stop.cancel();
    let (status, text) = client.get("/readyz").await;
    assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "the server is stopping\n"));
    // New connections and requests are still served: its address may not have left the Service yet.
    let mut late = server.client2().await;
    let answer = late.review("/convert", &review(&[widget("w", json!({}))])).await;
    assert_eq!(answer["result"]["status"], "Success");
    assert_eq!(late.get("/healthz").await.0, StatusCode::OK);
    server.end().await;
    tokio::time::timeout(LONG, late.connection).await.expect("the connection was closed").unwrap();
}

#[tokio::test]
async fn a_connection_of_http1_ends_with_its_first_answer_after_the_server_was_told_to_stop() {
    let server =
        Running::start(Settings { drain_delay: Duration::from_secs(3600), ..Settings::default() }).await;
    let (mut one, mut two) = (server.client().await, server.client2().await);
    assert_eq!(one.get("/healthz").await.0, StatusCode::OK);
    server.stop.cancel();
    assert_eq!(one.get("/healthz").await.0, StatusCode::OK);
    tokio::time::timeout(LONG, one.connection).await.expect("the connection was closed").unwrap();
    for _ in 0..2 {
        assert_eq!(two.get("/healthz").await.0, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_review_in_flight_is_answered_before_the_connection_closes() {
    for http2 in [false, true] {
        let server = Running::start(Settings::default()).await;
        let mut client = if http2 { server.client2().await } else { server.client().await };
        let asked = tokio::spawn(async move {
            let answer = client.review("/convert", &review(&[widget("w", json!({"wait": true}))])).await;
            (answer, client)
        });
        let server = server.came().await;
        server.stop.cancel();
        let closed = async { while tokio::net::TcpStream::connect(server.address).await.is_ok() {} };
        tokio::time::timeout(LONG, closed).await.expect("nobody listens any more");
        assert!(!asked.is_finished() && !server.ended.is_finished());
        server.waiting.release.send(()).unwrap();
        let (answer, client) = asked.await.unwrap();
        assert_eq!(answer["result"]["status"], "Success");
        tokio::time::timeout(LONG, client.connection).await.expect("the connection was closed").unwrap();
        server.end().await;
    }
}

#[tokio::test]
async fn a_converter_that_hangs_does_not_keep_the_server_from_ending() {
    let mut settings = Settings { timeout: Duration::from_secs(1), ..Settings::default() };
    settings.listen.grace = Duration::from_secs(20);
    let server = Running::start(settings).await;
    let mut client = server.client().await;
    let response = client.review("/convert", &review(&[widget("hangs", json!({"wait": true}))])).await;
    assert_eq!(response["result"]["status"], "Failure");
    server.end().await;
}
