//! Lists in chunks and as a stream reach every object, also when an answer in the middle fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use restow_core::rewrite::token::{NEWEST, Token};
use restow_migrate::migration::ListMode;
use serde_json::json;

use crate::bench::{Bench, Kept, LIST, migrate_with, refusal, widgets};

fn is_list(request: &Request<Body>) -> bool {
    request.method() == "GET" && request.uri().path().ends_with("/widgets")
}

fn query(request: &Request<Body>) -> &str {
    request.uri().query().unwrap_or_default()
}

fn is_stream(request: &Request<Body>) -> bool {
    is_list(request) && query(request).contains("sendInitialEvents=true")
}

/// The continue token of a list request.
fn token(request: &Request<Body>) -> Option<&str> {
    let pairs = query(request).split('&');
    pairs.filter(|_| is_list(request)).find_map(|pair| pair.strip_prefix("continue="))
}

/// A 410 with or without a fresh continue token.
fn expired(fresh: Option<String>) -> Response<Body> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired",
        "message": "The provided continue parameter is too old", "metadata": {"continue": fresh},
    });
    let response = Response::builder().status(410).header("content-type", "application/json");
    response.body(Body::from(status.to_string().into_bytes())).unwrap()
}

/// Counts matching requests, and answers the first one.
fn once(
    matches: impl Fn(&Request<Body>) -> bool + Clone + Send + Sync + 'static,
    answer: impl Fn(&Request<Body>) -> Response<Body> + Clone + Send + Sync + 'static,
) -> (Arc<AtomicUsize>, impl Fn(&Request<Body>) -> Option<Response<Body>> + Clone + Send + Sync + 'static) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let each = move |request: &Request<Body>| {
        let first = matches(request) && counted.fetch_add(1, Ordering::SeqCst) == 0;
        first.then(|| answer(request))
    };
    (seen, each)
}

/// Migrates ten widgets, of which every one has to be stored in v2 and verified.
async fn all_are_rewritten(
    list: ListMode,
    answer: impl Fn(&Request<Body>) -> Option<Response<Body>> + Clone + Send + Sync + 'static,
) {
    let bench = Bench::outdated(10).await;
    let cluster = bench.cluster(answer);
    let progress = migrate_with(list, &cluster, &widgets(&cluster).await, None, &mut Kept::default()).await;
    let progress = progress.unwrap();
    assert_eq!((progress.counts.rewritten, progress.verified), (10, true), "{progress:?}");
    assert_eq!(bench.counts().await, BTreeMap::from([("v2".to_owned(), 10)]));
    bench.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_in_chunks_continues_with_the_servers_tokens() {
    let pages = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&pages);
    let count = move |request: &Request<Body>| {
        assert!(!is_stream(request), "{}", request.uri());
        counted.fetch_add(usize::from(token(request).is_some()), Ordering::SeqCst);
        None
    };
    all_are_rewritten(ListMode::Chunked, count).await;
    // Ten objects are three pages, of which two have a token, in each of two passes.
    assert_eq!(pages.load(Ordering::SeqCst), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_list_is_one_watch_for_each_pass() {
    let streams = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&streams);
    let count = move |request: &Request<Body>| {
        assert_eq!(token(request), None, "{}", request.uri());
        counted.fetch_add(usize::from(is_stream(request)), Ordering::SeqCst);
        None
    };
    all_are_rewritten(ListMode::Streaming, count).await;
    assert_eq!(streams.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_the_server_refuses_is_replaced_by_chunks() {
    let refuse = |request: &Request<Body>| {
        is_stream(request).then(|| refusal(422, "Invalid", "sendInitialEvents: Forbidden"))
    };
    all_are_rewritten(ListMode::Streaming, refuse).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ends_early_is_opened_again() {
    let (seen, cut) = once(is_stream, |_| Response::new(Body::from(Vec::new())));
    all_are_rewritten(ListMode::Streaming, cut).await;
    assert_eq!(seen.load(Ordering::SeqCst), 3);
}

/// kube-apiserver ends every stream that a long migration reads. If it were opened again each time, a migration of a
/// million objects would read most of them many times.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_in_the_middle_is_continued_in_chunks() {
    let bench = Bench::outdated(10).await;
    let objects = bench.get(LIST).await.unwrap()["items"].as_array().unwrap().clone();
    // One page and half of another.
    let events: String = objects[..6]
        .iter()
        .map(|object| format!("{}\n", json!({"type": "ADDED", "object": object})))
        .collect();
    let (streams, cut) = once(is_stream, move |_| Response::new(Body::from(events.clone().into_bytes())));
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&tokens);
    let cluster = bench.cluster(move |request: &Request<Body>| {
        seen.lock().unwrap().extend(token(request).map(str::to_owned));
        cut(request)
    });
    let resource = widgets(&cluster).await;
    let progress =
        migrate_with(ListMode::Streaming, &cluster, &resource, None, &mut Kept::default()).await.unwrap();
    assert_eq!((progress.counts.listed, progress.counts.rewritten, progress.verified), (10, 10, true));
    assert_eq!(bench.counts().await, BTreeMap::from([("v2".to_owned(), 10)]));
    assert_eq!(streams.load(Ordering::SeqCst), 2, "one for each pass");
    let behind = format!("default/{}", objects[3]["metadata"]["name"].as_str().unwrap());
    assert_eq!(tokens.lock().unwrap().first(), Some(&Token::behind(&behind, NEWEST).encode()));
    bench.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_expires_in_the_middle_makes_the_list_start_over() {
    let (seen, expire) = once(|request| token(request).is_some(), |_| expired(None));
    let bench = Bench::outdated(10).await;
    let cluster = bench.cluster(expire);
    let mut kept = Kept::default();
    let resource = widgets(&cluster).await;
    let progress = migrate_with(ListMode::Chunked, &cluster, &resource, None, &mut kept).await.unwrap();
    assert!(progress.verified, "{progress:?}");
    // The first page is listed and written twice.
    assert_eq!((progress.counts.rewritten, progress.counts.listed), (10, 14));
    assert!(seen.load(Ordering::SeqCst) > 1);
    assert_eq!(bench.counts().await, BTreeMap::from([("v2".to_owned(), 10)]));
    bench.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_token_of_an_expired_list_continues_it() {
    let (_, expire) = once(
        |request| token(request).is_some(),
        |request| {
            let token = token(request).and_then(Token::decode).unwrap();
            expired(Some(Token { resource_version: NEWEST, ..token }.encode()))
        },
    );
    all_are_rewritten(ListMode::Chunked, expire).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_a_list_is_not_an_empty_page() {
    for body in ["{}", r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#, "<html>log in</html>"] {
        let (_, wrong) = once(
            |request| token(request).is_some(),
            move |_| Response::new(Body::from(body.as_bytes().to_vec())),
        );
        all_are_rewritten(ListMode::Chunked, wrong).await;
    }
}
