//! Bodies that are too large, too slow or too many.

use std::time::Duration;

use http::{Method, StatusCode};
use restow_webhook::Settings;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::connect;
use crate::fixture::{LONG, Running, review, widget};

/// Sends a text on a connection of its own, and reads what comes back until it is closed.
async fn raw(server: &Running, text: &str) -> String {
    let mut stream = connect(server.address, &server.ca, b"http/1.1").await;
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await.expect("the connection closes");
    String::from_utf8(answer).unwrap()
}

fn head(length: usize) -> String {
    format!("POST /convert HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n")
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let server = Running::start(Settings::default()).await;
    let answer = raw(&server, &head((50 << 20) + 1)).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("longer than 52428800 bytes"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn a_body_without_a_length_is_limited_too() {
    let mut settings = Settings::default();
    settings.limits.bytes = 1000;
    let server = Running::start(settings).await;
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    let head = "POST /convert HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = raw(&server, &format!("{head}{chunk}0\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let compressed = "POST /convert HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n";
    assert!(raw(&server, compressed).await.starts_with("HTTP/1.1 415"));
    server.end().await;
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    let server =
        Running::start(Settings { body_timeout: Duration::from_secs(1), ..Settings::default() }).await;
    let answer = raw(&server, &format!("{}{{\"kind\"", head(1000))).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn bodies_share_a_bounded_memory() {
    let mut settings =
        Settings { memory: 1 << 20, body_timeout: Duration::from_secs(2), ..Settings::default() };
    settings.limits.bytes = 1 << 20;
    let server = Running::start(settings).await;
    // Announces a body that takes all the memory, and does not send it.
    let mut slow = connect(server.address, &server.ca, b"http/1.1").await;
    slow.write_all(head(1 << 20).as_bytes()).await.unwrap();
    let mut client = server.client().await;
    let good = review(&[widget("w", json!({}))]).to_string();
    // Whether it comes before the slow one, waits for it or is told to try again: it succeeds in the end.
    let served =
        async { while client.send(Method::POST, "/convert", good.clone()).await.0 != StatusCode::OK {} };
    tokio::time::timeout(LONG, served).await.expect("memory is given back");
    server.end().await;
}

#[tokio::test]
async fn reviews_above_the_limit_wait_for_their_turn() {
    let server = Running::start(Settings { at_once: 1, ..Settings::default() }).await;
    let (mut first, mut second) = (server.client().await, server.client().await);
    let one = tokio::spawn(async move {
        first.review("/convert", &review(&[widget("a", json!({"wait": true}))])).await
    });
    let server = server.came().await;
    let two =
        tokio::spawn(async move { second.review("/convert", &review(&[widget("b", json!({}))])).await });
    let mut watching = server.client().await;
    let both =
        async { while !watching.get("/metrics").await.1.contains("restow_webhook_reviews_in_flight 2") {} };
    tokio::time::timeout(LONG, both).await.unwrap();
    assert!(!two.is_finished());
    server.waiting.release.send(()).unwrap();
    for review in [one, two] {
        assert_eq!(review.await.unwrap()["result"]["status"], "Success");
    }
    server.end().await;
}

#[tokio::test]
async fn an_answer_of_many_frames_arrives_whole() {
    let server = Running::start(Settings::default()).await;
    let objects: Vec<_> =
        (0..300).map(|number| widget(&format!("w{number}"), json!({"text": "x".repeat(10_000)}))).collect();
    for mut client in [server.client().await, server.client2().await] {
        let response = client.review("/convert", &review(&objects)).await;
        assert_eq!(response["convertedObjects"].as_array().unwrap().len(), 300);
    }
    server.end().await;
}
