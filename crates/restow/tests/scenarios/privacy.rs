//! The data of objects never reaches restow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use restow_lab::{Observer, Recorder, Seen};
use serde_json::json;

use crate::support::{Lab, Restow, create_all, name, send};

scenarios! {
    the_data_of_a_thousand_secrets_never_reaches_restow,
}

const CANARY: &str = "canary-7f3a9c51";

/// Looks for the canary, plain and as a Secret encodes it, in all that restow receives.
#[derive(Default)]
struct Listener {
    bytes: AtomicUsize,
    heard: AtomicBool,
}

impl Observer for Listener {
    fn chunk(&self, _: &Seen, chunk: &[u8]) {
        self.bytes.fetch_add(chunk.len(), Ordering::SeqCst);
        let text = String::from_utf8_lossy(chunk);
        // "canary-7f3a9c51" in base64, as the one value of its key; and a part that survives a split in two chunks.
        if [CANARY, "Y2FuYXJ5LTdmM2E5YzUx", "Y2FuYXJ5", "canary-"].iter().any(|secret| text.contains(secret))
        {
            self.heard.store(true, Ordering::SeqCst);
        }
    }
}

async fn the_data_of_a_thousand_secrets_never_reaches_restow(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "private"}});
    send(&client, "POST", "/api/v1/namespaces", Some(&namespace)).await;
    let secret = |index| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name(index)}, "stringData": {"password": CANARY},
        })
    };
    create_all(&client, "/api/v1/namespaces/private/secrets", 0..1000, secret).await;
    let listener = Arc::new(Listener::default());
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&listener)).await.unwrap();
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    for args in [
        &["plan", "secrets", "--dry-run-objects"][..],
        &["migrate", "secrets", "--pace", "fast"],
        &["migrate", "secrets", "--pace", "fast", "--list", "streaming"],
    ] {
        let ran = restow.run(args).await.expect(0);
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(CANARY));
    }
    let heard = listener.bytes.load(Ordering::SeqCst);
    assert!(heard > 1_000_000, "only {heard} bytes went by: the listener does not listen");
    assert!(!listener.heard.load(Ordering::SeqCst), "the data of a Secret reached restow");

    // The listener would have heard it.
    let through = kube::Client::try_from(kube::Config::new(recorder.url().parse().unwrap())).unwrap();
    send(&through, "GET", "/api/v1/namespaces/private/secrets?limit=1", None).await;
    assert!(listener.heard.load(Ordering::SeqCst), "the listener is deaf");
}
