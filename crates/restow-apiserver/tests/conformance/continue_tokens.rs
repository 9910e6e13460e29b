//! Lists in pages: one consistent state, until it is too old.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::subject::Subject;

scenarios![
    all_pages_show_one_resource_version,
    a_page_says_how_many_remain,
    a_continue_token_is_bound_to_its_list,
    a_list_continues_after_an_expired_token,
    a_continue_token_has_a_key_and_a_resource_version,
];

fn token(page: &Answer) -> String {
    page["metadata"]["continue"].as_str().unwrap_or_default().to_owned()
}

async fn all_pages_show_one_resource_version(subject: &Subject) {
    let place = subject.namespace("pages-view").await;
    place.make(&["a", "b", "c", "d", "e"]).await;
    let first = place.get("configmaps?limit=2").await.ok();
    assert_eq!(first.names(), "a b");
    place.delete("configmaps/d").await.ok();
    place.merge("configmaps/c", json!({"data": {"k": "new"}})).await.ok();
    place.make(&["bb", "f"]).await;
    let second = place.get(&format!("configmaps?limit=2&continue={}", token(&first))).await.ok();
    assert_eq!(second.names(), "c d");
    assert_eq!(second["items"][0]["data"], Value::Null);
    let third = place.get(&format!("configmaps?limit=2&continue={}", token(&second))).await.ok();
    assert_eq!((third.names().as_str(), token(&third).as_str()), ("e", ""));
    for page in [&second, &third] {
        assert_eq!(page.resource_version(), first.resource_version());
    }
    // A page may have another size, or no limit.
    let rest = place.get(&format!("configmaps?continue={}", token(&first))).await.ok();
    assert_eq!(rest.names(), "c d e");
}

async fn a_page_says_how_many_remain(subject: &Subject) {
    let place = subject.namespace("pages-remain").await;
    place.make(&["a", "b", "c", "d", "e"]).await;
    let first = place.get("configmaps?limit=2").await.ok();
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let second = place.get(&format!("configmaps?limit=2&continue={}", token(&first))).await.ok();
    assert_eq!(second["metadata"]["remainingItemCount"], 1);
    let last = place.get(&format!("configmaps?limit=2&continue={}", token(&second))).await.ok();
    assert_eq!(last["metadata"]["remainingItemCount"], Value::Null);
    // With a selector there is no count.
    let selected = place.get("configmaps?limit=2&labelSelector=!none").await.ok();
    assert_eq!(selected.names(), "a b");
    assert_eq!(selected["metadata"]["remainingItemCount"], Value::Null);
    assert_ne!(token(&selected), "");
    // A limit that equals the number of objects leaves no remainder.
    let all = place.get("configmaps?limit=5").await.ok();
    assert_eq!((all.names().as_str(), token(&all).as_str()), ("a b c d e", ""));
}

async fn a_continue_token_is_bound_to_its_list(subject: &Subject) {
    let place = subject.namespace("pages-bound").await;
    place.make(&["a", "b"]).await;
    let page = place.get("configmaps?limit=1").await.ok();
    let token = token(&page);
    let answer = place.get(&format!("configmaps?limit=1&continue={token}&resourceVersion=1")).await;
    assert_eq!(answer.reason(), "400 BadRequest", "{}", answer.line());
    let zero = place.get(&format!("configmaps?limit=1&continue={token}&resourceVersion=0")).await.ok();
    assert_eq!(zero.names(), "b");
}

fn encoded(token: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(token.to_string())
}

async fn a_list_continues_after_an_expired_token(subject: &Subject) {
    let place = subject.namespace("pages-on").await;
    place.make(&["a", "b", "c"]).await;
    // A token without a resourceVersion continues at the newest state.
    let fresh = encoded(&json!({"v": "meta.k8s.io/v1", "rv": -1, "start": "a\u{0}"}));
    let page = place.get(&format!("configmaps?limit=1&continue={fresh}")).await.ok();
    assert_eq!(page.names(), "b");
    let next = place.get(&format!("configmaps?limit=5&continue={}", token(&page))).await.ok();
    assert_eq!(next.names(), "c");
}

async fn a_continue_token_has_a_key_and_a_resource_version(subject: &Subject) {
    let place = subject.namespace("pages-token").await;
    place.make(&["a", "b"]).await;
    let page = place.get("configmaps?limit=1").await.ok();
    let token = BASE64_URL_SAFE_NO_PAD.decode(token(&page)).unwrap();
    let token: Value = serde_json::from_slice(&token).unwrap();
    let version: u64 = page.resource_version().parse().unwrap();
    assert_eq!((&token["v"], &token["rv"]), (&json!("meta.k8s.io/v1"), &json!(version)));
    // From its cache, kube-apiserver gives it with a slash before it, and from etcd without.
    let start = |token: &Value| token["start"].as_str().unwrap().trim_start_matches('/').to_owned();
    assert_eq!(start(&token), "a\u{0}");
    // For all namespaces, the start includes the namespace.
    let place = subject.namespace("pages-token-all").await;
    for name in ["a", "b"] {
        place.post("secrets", json!({"metadata": {"name": name, "labels": {"pages": "token"}}})).await.ok();
    }
    let page = place.get("/api/v1/secrets?limit=1&labelSelector=pages%3Dtoken").await.ok();
    let token = BASE64_URL_SAFE_NO_PAD.decode(self::token(&page)).unwrap();
    let token: Value = serde_json::from_slice(&token).unwrap();
    assert_eq!(start(&token), "pages-token-all/a\u{0}");
    for broken in
        [json!({"v": "meta.k8s.io/v2", "rv": 5, "start": "a"}), json!({"v": "meta.k8s.io/v1", "rv": 0})]
    {
        let answer = place.get(&format!("configmaps?limit=1&continue={}", encoded(&broken))).await;
        assert_eq!(answer.reason(), "400 BadRequest", "{broken}: {}", answer.line());
    }
}
