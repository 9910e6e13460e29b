//! An aggregated API server that registers its storage versions: which requests it refuses before, and from whom.
//!
//! Only on a real kube-apiserver: the embedded server has no aggregation layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aggregated_apiserver::ship::{GROUP, Version};
use http::Request;
use kube::{Client, Config};
use restow_lab::{Action, Observer, Part, Recorder, Seen};
use serde_json::json;

use crate::fleet::{FRONT, Fleet, Replica, config, path};
use crate::support::{lab, send, wait};

/// Refuses every write of StorageVersions, as long as it is told to.
#[derive(Default)]
struct Refusal(AtomicBool);

impl Observer for Refusal {
    fn request(&self, request: &Seen) -> Action {
        let writes = request.method != "GET" && request.path.contains("/storageversions");
        if writes && self.0.load(Ordering::SeqCst) {
            return Action::reply(500, r#"{"kind":"Status","apiVersion":"v1","code":500,"message":"no"}"#);
        }
        Action::Forward
    }
}

/// An answer: code, Retry-After and body.
async fn answer(client: &Client, request: Request<Vec<u8>>) -> (u16, Option<String>, String) {
    let response = client.send(request.map(kube::client::Body::from)).await.unwrap();
    let after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let (code, body) = (response.status().as_u16(), response.into_body().collect_bytes().await.unwrap());
    (code, after, String::from_utf8(body.to_vec()).unwrap())
}

/// A client for a replica itself, with a configuration that says nothing of it yet.
fn client(fleet: &Fleet, replica: &Replica, mut config: Config) -> Client {
    config.cluster_url = format!("https://{}", replica.address).parse().unwrap();
    config.root_cert = Some(vec![fleet.certificate().der().to_vec()]);
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// One without credentials.
fn anonymous(fleet: &Fleet, replica: &Replica) -> Client {
    client(fleet, replica, Config::new("https://localhost".parse().unwrap()))
}

/// One with the token of one of the cluster's users.
async fn with_token(fleet: &Fleet, replica: &Replica, user: &str) -> Client {
    client(fleet, replica, config(fleet.cluster.kubeconfig(0, user)).await)
}

/// One with a certificate from the cluster's folder: with `front-proxy-client` it is taken for the kube-apiserver.
fn with_certificate(fleet: &Fleet, replica: &Replica, name: &str) -> Client {
    let mut config = Config::new("https://localhost".parse().unwrap());
    let file = |end: &str| fleet.cluster.dir().join(format!("{name}.{end}")).display().to_string();
    config.auth_info.client_certificate = Some(file("crt"));
    config.auth_info.client_key = Some(file("key"));
    client(fleet, replica, config)
}

fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).unwrap()
}

/// Makes a ship, as an administrator whom the front proxy speaks for where the sender is that.
fn make(name: &str) -> Request<Vec<u8>> {
    let ship = json!({"apiVersion": format!("{GROUP}/v2"), "kind": "Ship", "metadata": {"name": name}});
    let request = Request::post(path("v2")).header("content-type", "application/json");
    let request = request.header("x-remote-user", "me").header("x-remote-group", "system:masters");
    request.body(ship.to_string().into_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_allowed_only_while_the_versions_are_registered() {
    let assets = lab!();
    let fleet = Fleet::on_file(&assets).await;
    let refusal = Arc::new(Refusal(AtomicBool::new(true)));
    let recorder = Recorder::start(&fleet.cluster, 0, "admin", Arc::clone(&refusal)).await.unwrap();
    let mut identity = fleet.identity(FRONT, recorder.kubeconfig().to_owned()).await;
    identity.duration = Duration::from_secs(6);
    let replica = fleet.start_as(identity, Version::V2).await;
    let (through, itself) = (fleet.client(), anonymous(&fleet, &replica));
    wait("reads to be served", || async { answer(&through, get(&path("v1"))).await.0 == 200 }).await;

    // StorageVersions cannot be written: nobody could know of what would be stored.
    let (code, after, body) = answer(&through, make("a")).await;
    assert_eq!((code, after.as_deref()), (503, Some("1")), "{body}");
    assert!(body.contains("the storage version is not registered yet"), "{body}");
    let (code, _, body) = answer(&itself, get("/readyz")).await;
    assert_eq!(code, 500);
    assert!(body.contains("the storage versions are not registered yet"), "{body}");
    assert_eq!(answer(&itself, get("/livez")).await.0, 200);

    refusal.0.store(false, Ordering::SeqCst);
    wait("readiness", || async { answer(&itself, get("/readyz")).await.0 == 200 }).await;
    assert_eq!(answer(&through, make("a")).await.0, 201);

    // With the kube-apiserver silent, others may come to take this server for gone: it stops to write before.
    let proxy = with_certificate(&fleet, &replica, "front-proxy-client");
    fleet.cluster.pause(Part::ApiServer(0)).unwrap();
    wait("the tenure to end", || async { answer(&itself, get("/readyz")).await.0 == 500 }).await;
    let (_, _, body) = answer(&itself, get("/readyz")).await;
    assert!(body.contains("the identity Lease was lost") || body.contains("not registered"), "{body}");
    let (code, after, body) = answer(&proxy, make("b")).await;
    assert_eq!((code, after.as_deref()), (503, Some("1")), "{body}");
    let mut read = get(&path("v1"));
    read.headers_mut().extend(make("b").headers().clone());
    let (code, _, body) = answer(&proxy, read).await;
    assert_eq!(code, 200, "{body}");
    assert!(body.contains("\"a\"") && !body.contains("\"b\""), "{body}");

    fleet.cluster.unpause(Part::ApiServer(0)).unwrap();
    wait("readiness", || async { answer(&itself, get("/readyz")).await.0 == 200 }).await;
    wait("writes", || async { answer(&through, make("b")).await.0 == 201 }).await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_front_proxy_may_set_user_headers() {
    let assets = lab!();
    let fleet = Fleet::on_file(&assets).await;
    let replica = fleet.start(FRONT, Version::V2).await;
    fleet.serves(Version::V2).await;
    let nobody = anonymous(&fleet, &replica);
    let (code, _, body) = answer(&nobody, make("forged")).await;
    assert_eq!(code, 401, "{body}");
    assert_eq!(answer(&nobody, get(&format!("/apis/{GROUP}/v2"))).await.0, 401);
    let proxy = with_certificate(&fleet, &replica, "front-proxy-client");
    assert_eq!(answer(&proxy, make("passed-on")).await.0, 201);
    assert_eq!(answer(&proxy, get(&path("v2"))).await.0, 401, "a front proxy that speaks for nobody");
    // A certificate of the same authority under another name.
    let other = with_certificate(&fleet, &replica, "webhook");
    assert_eq!(answer(&other, make("forged")).await.0, 401);

    // Tokens are the kube-apiserver's to judge, and so is what users may do, whichever way they come.
    let alice = [fleet.cluster.client_as(0, "alice").unwrap(), with_token(&fleet, &replica, "alice").await];
    for client in &alice {
        let (code, _, body) = answer(client, get(&path("v2"))).await;
        assert_eq!(code, 403, "{body}");
        assert!(body.contains("alice"), "{body}");
        assert_eq!(answer(client, get(&format!("/apis/{GROUP}/v2"))).await.0, 200);
    }
    let admin = with_token(&fleet, &replica, "admin").await;
    assert_eq!(answer(&admin, get(&path("v2"))).await.0, 200);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": [GROUP], "resources": ["ships"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "sailor"}, "rules": rules});
    send(&fleet.client(), "POST", &format!("{rbac}/roles"), Some(&role)).await;
    let binding = json!({
        "metadata": {"name": "sailor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "sailor"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    send(&fleet.client(), "POST", &format!("{rbac}/rolebindings"), Some(&binding)).await;
    for client in &alice {
        wait("alice to be allowed", || async { answer(client, get(&path("v2"))).await.0 == 200 }).await;
        assert_eq!(answer(client, make("more")).await.0, 403, "to list is not to make");
    }
    replica.stop().await;
}
