//! Pages under load: each is written again and again, each time through the next version, and nothing of it may get lost.

use http::Request;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) const VERSIONS: [&str; 3] = ["v1alpha1", "v1beta1", "v1"];
/// Where pages are stored.
pub(crate) const PREFIX: &str = "/registry/example.com/pages/";

/// The path of all pages, or of one.
pub(crate) fn path(version: &str, page: &str) -> String {
    let slash = if page.is_empty() { "" } else { "/" };
    format!("/apis/example.com/{version}/namespaces/default/pages{slash}{page}")
}

pub(crate) fn name(index: usize) -> String {
    format!("page-{index:04}")
}

/// The fields of a page through a version, after it was written so often.
///
/// Even ones are made in v1alpha1: they blink, and their port is spelt in a way that v1 cannot express. Odd ones are made in
/// v1, in German, which the older versions cannot express.
pub(crate) fn expected(index: usize, version: &str, round: usize) -> Value {
    let (title, body, host) =
        (format!("Page {index}"), round.to_string(), format!("www-{index}.example.com"));
    let is_old = index.is_multiple_of(2);
    let address = if is_old { format!("{host}:08080") } else { format!("{host}:8080") };
    match version {
        "v1alpha1" if is_old => json!({"heading": title, "body": body, "address": address, "blink": true}),
        "v1alpha1" => json!({"heading": title, "body": body, "address": address}),
        "v1beta1" => json!({"title": title, "body": body, "address": address}),
        _ => {
            let language = if is_old { "en" } else { "de" };
            json!({"title": title, "body": body, "host": host, "port": 8080, "language": language})
        }
    }
}

/// A page that was not written since it was made.
pub(crate) fn page(index: usize) -> (&'static str, Value) {
    let version = if index.is_multiple_of(2) { "v1alpha1" } else { "v1" };
    let page = json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Page",
        "metadata": {"name": name(index), "labels": {"number": index.to_string()}},
        "spec": expected(index, version, 0),
    });
    (version, page)
}

/// Sends a request. It is repeated while API servers or webhooks are not reachable, which is said at the end.
pub(crate) async fn send(
    client: &kube::Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, kube::Error> {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request =
        Request::builder().method(method).uri(path).header("Content-Type", content_type).body(body).unwrap();
    client.request(request).await
}

/// Whether a request may succeed later: the server asks to come back, or a webhook or the object was changed meanwhile.
fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 409 | 429 | 500 | 503 | 504),
        _ => false,
    }
}

/// Gets a page or a list, as soon as the server can.
pub(crate) async fn get(client: &kube::Client, path: &str) -> Value {
    loop {
        match send(client, "GET", path, None).await {
            Ok(object) => return object,
            Err(error) if may_pass(&error) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("GET {path}: {error}"),
        }
    }
}

/// Makes pages.
pub(crate) async fn create(client: &kube::Client, range: std::ops::Range<usize>) {
    for index in range {
        let (version, page) = page(index);
        loop {
            match send(client, "POST", &path(version, ""), Some(&page)).await {
                Ok(_) => break,
                Err(error) if may_pass(&error) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => panic!("{page}: {error}"),
            }
        }
    }
}

/// Writes a page that was written in the round before, through the version of this round. Only this task writes its spec.
pub(crate) async fn write_once(client: &kube::Client, index: usize, round: usize) {
    let version = VERSIONS[(index + round) % 3];
    let path = path(version, &name(index));
    loop {
        let mut page = get(client, &path).await;
        if page["spec"] == expected(index, version, round) {
            // A write without an answer was carried out.
            return;
        }
        assert_eq!(page["spec"], expected(index, version, round - 1), "{version}, round {round}");
        page["spec"]["body"] = json!(round.to_string());
        match send(client, "PUT", &path, Some(&page)).await {
            Ok(written) => {
                assert_eq!(written["spec"], expected(index, version, round), "{version}, round {round}");
                return;
            }
            Err(error) if may_pass(&error) => {}
            Err(error) => panic!("PUT {path}: {error}"),
        }
    }
}

/// Writes pages and lists them in every version until `done`. Returns how often each was written.
pub(crate) async fn load(client: &kube::Client, rounds: &mut [usize], done: &std::sync::atomic::AtomicBool) {
    use std::sync::atomic::Ordering::SeqCst;
    let count = rounds.len();
    let writes = rounds.iter_mut().enumerate().map(async |(index, round)| {
        while !done.load(SeqCst) {
            *round += 1;
            write_once(client, index, *round).await;
        }
    });
    let lists = async {
        while !done.load(SeqCst) {
            for version in VERSIONS {
                let list = get(client, &path(version, "")).await;
                assert!(list["items"].as_array().unwrap().len() >= count);
            }
        }
    };
    futures::join!(futures::future::join_all(writes), lists);
}

/// Checks that a stored page is of this version, and what it says in every version.
pub(crate) async fn check(client: &kube::Client, stored: &[Value], version: &str, rounds: &[usize]) {
    assert_eq!(stored.len(), rounds.len());
    for object in stored {
        let index: usize = object["metadata"]["labels"]["number"].as_str().unwrap().parse().unwrap();
        assert_eq!(object["apiVersion"], format!("example.com/{version}"), "{object}");
        assert_eq!(object["spec"], expected(index, version, rounds[index]), "{object}");
    }
    for (index, round) in rounds.iter().enumerate() {
        for version in VERSIONS {
            let page = get(client, &path(version, &name(index))).await;
            assert_eq!(page["spec"], expected(index, version, *round), "{version} of {index}");
        }
    }
}
