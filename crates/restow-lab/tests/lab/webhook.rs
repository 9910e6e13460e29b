//! A conversion webhook as API servers see it.

use http::Request;
use kube::Client;
use restow_lab::{Cluster, ClusterSpec, ConversionWebhook, assets};
use serde_json::{Value, json};

const GADGETS: &str = "/apis/example.com/v2/namespaces/default/gadgets";

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> kube::Result<Value> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    client.request(request.body(body.to_string().into_bytes()).unwrap()).await
}

/// The server's words when it refuses.
fn words(answer: kube::Result<Value>) -> String {
    match answer.unwrap_err() {
        kube::Error::Api(status) => format!("{} {}", status.code, status.message),
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_converts_denies_and_goes_away() {
    let Some(assets) = assets::or_skip("a_webhook_converts_denies_and_goes_away") else { return };
    let cluster = Cluster::start(&assets, ClusterSpec::new()).await.unwrap();
    let client = cluster.client(0).unwrap();
    let webhook = ConversionWebhook::start(&cluster, |object, version| {
        object["spec"]["seen"] = version.into();
    });
    let webhook = webhook.await.unwrap();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": schema});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [version("v1"), version("v2")],
            "conversion": webhook.conversion(),
        },
    });
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&client, "POST", crds, &crd).await.unwrap();
    let gadget =
        json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "one"}, "spec": {}});
    restow_lab::suite::wait(std::time::Duration::from_secs(10), "the definition to be served", || async {
        send(&client, "POST", &GADGETS.replace("v2", "v1"), &gadget).await.is_ok()
    })
    .await;

    let one = format!("{GADGETS}/one");
    let read = async || send(&client, "GET", &one, &Value::Null).await;
    assert_eq!(read().await.unwrap()["spec"]["seen"], "example.com/v2");
    assert!(webhook.calls() > 0 && webhook.converted() > 0);

    webhook.deny(|name, version| (name == "one").then(|| format!("not {name} to {version}")));
    assert!(words(read().await).contains("not one to example.com/v2"));
    webhook.mend();
    for _ in 0..2 {
        webhook.down().await;
        let calls = webhook.calls();
        // The first request may still find the connection that was cut.
        read().await.unwrap_err();
        assert!(words(read().await).contains("connection refused"));
        assert_eq!(webhook.calls(), calls);
        webhook.up().await.unwrap();
        read().await.unwrap();
    }
}
