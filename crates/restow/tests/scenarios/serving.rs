//! Conversion by restow's own webhook: three versions by rules of the cluster, under load, and converters that misbehave.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::ByteString;
use kube::core::CustomResourceExt as _;
use restow_convert::rules::ConversionRules;
use restow_convert::{Converter, Converters, Convertible, Error};
use restow_lab::Cluster;
use restow_webhook::{CertificateFiles, LiveConverters, Server, Settings};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use crate::support::{CRDS, Lab, Restow, name, patch, send, try_send, wait};

scenarios!(
    three_versions_by_rules_lose_nothing_under_load,
    rules_that_break_keep_the_last_good_ones_in_use,
    a_bad_converter_is_the_error_of_its_own_request,
);

pub(crate) const RULES: &str = "/apis/restow.dev/v1alpha1/conversionrules";
pub(crate) const VERSIONS: [&str; 3] = ["v1alpha1", "v1beta1", "v1"];

/// A custom resource with three versions of different schemas, and the rules between them.
pub(crate) struct Gadgets {
    pub(crate) plural: &'static str,
}

impl Gadgets {
    pub(crate) fn group(&self) -> String {
        format!("{}.example.com", self.plural)
    }

    pub(crate) fn crd_name(&self) -> String {
        format!("{}.{}", self.plural, self.group())
    }

    pub(crate) fn path(&self, version: &str, object: &str) -> String {
        let slash = if object.is_empty() { "" } else { "/" };
        format!("/apis/{}/{version}/namespaces/default/{}{slash}{object}", self.group(), self.plural)
    }

    fn versions(storage: &str) -> Vec<Value> {
        let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
        let fields = [
            json!({"size": text, "target": text, "legacy": text, "mode": text}),
            json!({"size": number, "host": text, "port": number, "mode": text}),
            json!({"length": number, "host": text, "port": number, "mode": text, "replicas": number}),
        ];
        let version = |(name, fields): (&str, Value)| {
            let spec = json!({"type": "object", "properties": fields});
            let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
            json!({"name": name, "served": true, "storage": name == storage, "schema": schema})
        };
        VERSIONS.into_iter().zip(fields).map(version).collect()
    }

    /// The CRD, whose objects a webhook at this port converts.
    pub(crate) fn crd(&self, cluster: &Cluster, port: u16) -> Value {
        let ca = ByteString(fs::read(cluster.dir().join("ca.crt")).unwrap());
        let url = format!("https://127.0.0.1:{port}/convert/{}/Gadget", self.group());
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.crd_name()},
            "spec": {
                "group": self.group(), "scope": "Namespaced",
                "names": {"plural": self.plural, "singular": self.plural, "kind": "Gadget"},
                "versions": Self::versions("v1alpha1"),
                "conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"], "clientConfig": {"url": url, "caBundle": ca},
                }},
            },
        })
    }

    pub(crate) fn rules(&self) -> Value {
        json!({
            "apiVersion": "restow.dev/v1alpha1", "kind": "ConversionRules",
            "metadata": {"name": self.crd_name()},
            "spec": {"group": self.group(), "kind": "Gadget", "hops": [
                {"older": "v1alpha1", "newer": "v1beta1", "rules": [
                    {"type": {"older": "spec.size", "newer": "spec.size", "olderType": "string", "newerType": "integer"}},
                    {"split": {"older": "spec.target", "separator": ":",
                        "newer": [{"path": "spec.host"}, {"path": "spec.port", "type": "integer"}]}},
                    {"remove": {"older": "spec.legacy"}},
                ]},
                {"older": "v1beta1", "newer": "v1", "rules": [
                    {"rename": {"older": "spec.size", "newer": "spec.length"}},
                    {"default": {"newer": "spec.replicas", "value": 1}},
                ]},
            ]},
        })
    }

    /// An object of the oldest version.
    pub(crate) fn object(&self, index: usize) -> Value {
        json!({
            "apiVersion": format!("{}/v1alpha1", self.group()), "kind": "Gadget",
            "metadata": {"name": name(index), "labels": {"number": index.to_string()}},
            "spec": {"size": "0", "target": format!("host-{index}:80"), "legacy": format!("keep {index}")},
        })
    }

    pub(crate) async fn served(&self, client: &kube::Client) {
        wait("the definition to be served", || async {
            try_send(client, "GET", &self.path("v1", ""), None).await.is_ok()
        })
        .await;
    }
}

/// Makes the CRD of ConversionRules, which all scenarios share.
pub(crate) async fn define_rules(client: &kube::Client) {
    let crd = serde_json::to_value(ConversionRules::crd()).unwrap();
    let made = try_send(client, "POST", CRDS, Some(&crd)).await;
    assert!(made.is_ok() || made.unwrap_err().to_string().contains("already exists"));
    wait("ConversionRules to be served", || async { try_send(client, "GET", RULES, None).await.is_ok() })
        .await;
}

/// `restow webhook` as a process, with rules from the cluster.
struct Running {
    child: Child,
    port: u16,
}

impl Running {
    async fn start(cluster: &Cluster, restow: &Restow) -> Self {
        let file = |name: &str| cluster.dir().join(name).display().to_string();
        let (certificate, key) = (file("webhook.crt"), file("webhook.key"));
        let mut child = restow
            .command(&[
                "webhook",
                "--listen",
                "127.0.0.1:0",
                "--tls-cert-file",
                &certificate,
                "--tls-private-key-file",
                &key,
                "--drain-delay",
                "0s",
                "--log-format",
                "json",
            ])
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next_line().await.unwrap().expect("an address");
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(address) = line["fields"]["address"].as_str() {
                break address.to_owned();
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, port: address.rsplit(':').next().unwrap().parse().unwrap() }
    }

    /// Ends it with SIGTERM. Its exit code.
    async fn end(mut self) -> Option<i32> {
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        self.child.wait().await.unwrap().code()
    }
}

/// The condition Valid of rules, and the generation that a webhook serves. Other scenarios have webhooks of their own.
pub(crate) async fn status(client: &kube::Client, rules: &str, port: u16) -> (String, Option<i64>) {
    let object = send(client, "GET", &format!("{RULES}/{rules}"), None).await;
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let valid = conditions.iter().find(|condition| condition["type"] == "Valid");
    let reason =
        valid.map(|valid| format!("{} {}", valid["reason"].as_str().unwrap(), valid["observedGeneration"]));
    let replicas = object["status"]["replicas"].as_array().cloned().unwrap_or_default();
    let is_own = |replica: &&Value| replica["name"].as_str().unwrap().ends_with(&format!(":{port}"));
    let served = replicas.iter().find(is_own).map(|replica| replica["generation"].as_i64().unwrap());
    (reason.unwrap_or_default(), served)
}

/// Sets the size of an object through a version, whatever it is called there.
fn resize(object: &mut Value, version: &str, size: usize) {
    match version {
        "v1alpha1" => object["spec"]["size"] = size.to_string().into(),
        "v1beta1" => object["spec"]["size"] = size.into(),
        _ => object["spec"]["length"] = size.into(),
    }
}

/// What an object of this size looks like through a version.
pub(crate) fn expected(index: usize, version: &str, size: usize) -> Value {
    let (host, text) = (format!("host-{index}"), size.to_string());
    match version {
        "v1alpha1" => {
            json!({"size": text, "target": format!("{host}:80"), "legacy": format!("keep {index}")})
        }
        "v1beta1" => json!({"size": size, "host": host, "port": 80}),
        _ => json!({"length": size, "host": host, "port": 80, "replicas": 1}),
    }
}

/// Sends a request that must succeed. A kube-apiserver whose CRD was changed asks its clients to come back for a moment.
pub(crate) async fn persist(client: &kube::Client, method: &str, path: &str, body: Option<&Value>) -> Value {
    loop {
        match try_send(client, method, path, body).await {
            Ok(answer) => return answer,
            Err(kube::Error::Api(status)) if status.message == "storage is (re)initializing" => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }
}

/// Writes an object again and again, each time through the next version. Only this task writes it, so nothing may fail.
async fn write(client: &kube::Client, gadgets: &Gadgets, index: usize, rounds: usize) {
    for round in 1..=rounds {
        write_once(client, gadgets, index, round).await;
    }
}

/// Writes an object that was written in the round before, through the version of this round.
pub(crate) async fn write_once(client: &kube::Client, gadgets: &Gadgets, index: usize, round: usize) {
    let version = VERSIONS[(index + round) % 3];
    let path = gadgets.path(version, &name(index));
    let mut object = persist(client, "GET", &path, None).await;
    assert_eq!(object["spec"], expected(index, version, round - 1), "{version}, round {round}");
    resize(&mut object, version, round);
    let written = persist(client, "PUT", &path, Some(&object)).await;
    assert_eq!(written["spec"], expected(index, version, round), "{version}, round {round}");
}

async fn three_versions_by_rules_lose_nothing_under_load(lab: Lab) {
    let (cluster, gadgets) = (lab.shared(), Gadgets { plural: "loadedgadgets" });
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(cluster);
    define_rules(&client).await;
    let webhook = Running::start(cluster, &restow).await;
    send(&client, "POST", CRDS, Some(&gadgets.crd(cluster, webhook.port))).await;
    send(&client, "POST", RULES, Some(&gadgets.rules())).await;
    wait("the rules to be served", || async {
        status(&client, &gadgets.crd_name(), webhook.port).await == ("Compiled 1".to_owned(), Some(1))
    })
    .await;
    gadgets.served(&client).await;
    let (count, rounds) = (24, 12);
    for index in 0..count {
        send(&client, "POST", &gadgets.path("v1alpha1", ""), Some(&gadgets.object(index))).await;
    }
    let (done, lists) = (AtomicBool::new(false), AtomicU64::new(0));
    let writes = async {
        let tasks = (0..count).map(|index| write(&client, &gadgets, index, rounds));
        stream::iter(tasks).buffer_unordered(8).for_each(|()| async {}).await;
        done.store(true, Ordering::SeqCst);
    };
    let reads = async {
        while !done.load(Ordering::SeqCst) {
            for version in VERSIONS {
                let list = persist(&client, "GET", &gadgets.path(version, ""), None).await;
                assert_eq!(list["items"].as_array().unwrap().len(), count);
                lists.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    // The storage version changes meanwhile.
    let change = async {
        while lists.load(Ordering::SeqCst) < 3 {
            tokio::task::yield_now().await;
        }
        let versions = json!({"spec": {"versions": Gadgets::versions("v1")}});
        patch(&client, &format!("{CRDS}/{}", gadgets.crd_name()), &versions).await;
    };
    futures::join!(writes, reads, change);
    restow.migrate(&gadgets.crd_name(), &[]).await.expect(0);
    let mut stored = 0;
    let check = |key: &str, bytes: &[u8]| {
        let object: Value = serde_json::from_slice(bytes).unwrap();
        let index: usize = object["metadata"]["labels"]["number"].as_str().unwrap().parse().unwrap();
        assert_eq!(object["apiVersion"], format!("{}/v1", gadgets.group()), "{key}");
        assert_eq!(object["spec"], expected(index, "v1", rounds), "{key}");
        let kept = object["metadata"]["annotations"]["restow.dev/conversion-data"].as_str().unwrap();
        assert!(kept.contains(&format!("keep {index}")), "{key}: {kept}");
        stored += 1;
    };
    let prefix = format!("/registry/{}/{}/", gadgets.group(), gadgets.plural);
    cluster.store().for_each(&prefix, check).await.unwrap();
    assert_eq!(stored, count);
    for index in 0..count {
        for version in VERSIONS {
            let object = send(&client, "GET", &gadgets.path(version, &name(index)), None).await;
            assert_eq!(object["spec"], expected(index, version, rounds), "{version} of {index}");
        }
    }
    let port = webhook.port;
    assert_eq!(webhook.end().await, Some(0));
    assert_eq!(status(&client, &gadgets.crd_name(), port).await.1, None, "the replica has left");
}

async fn rules_that_break_keep_the_last_good_ones_in_use(lab: Lab) {
    let (cluster, gadgets) = (lab.shared(), Gadgets { plural: "brokengadgets" });
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(cluster);
    define_rules(&client).await;
    let webhook = Running::start(cluster, &restow).await;
    let rules = format!("{RULES}/{}", gadgets.crd_name());
    send(&client, "POST", RULES, Some(&gadgets.rules())).await;
    let reaches = async |reason: &'static str, served: i64| {
        wait(reason, || async {
            status(&client, &gadgets.crd_name(), webhook.port).await == (reason.to_owned(), Some(served))
        })
        .await;
    };
    reaches("NoDefinition 1", 0).await;
    send(&client, "POST", CRDS, Some(&gadgets.crd(cluster, webhook.port))).await;
    reaches("Compiled 1", 1).await;
    gadgets.served(&client).await;
    send(&client, "POST", &gadgets.path("v1alpha1", ""), Some(&gadgets.object(0))).await;
    let read = || async { send(&client, "GET", &gadgets.path("v1", &name(0)), None).await["spec"].clone() };
    assert_eq!(read().await, expected(0, "v1", 0));
    // A hop without the rules that it needs.
    let broken = json!({"spec": {"hops": [{"older": "v1alpha1", "newer": "v1beta1", "rules": []}]}});
    patch(&client, &rules, &broken).await;
    reaches("DoesNotCompile 2", 1).await;
    assert_eq!(read().await, expected(0, "v1", 0), "the last good rules are still used");
    let good = json!({"spec": gadgets.rules()["spec"]});
    patch(&client, &rules, &good).await;
    reaches("Compiled 3", 3).await;
    // A value that a rule has no answer for is the error of its own object.
    let mut bad = gadgets.object(1);
    bad["spec"]["size"] = "many".into();
    send(&client, "POST", &gadgets.path("v1alpha1", ""), Some(&bad)).await;
    let error = try_send(&client, "GET", &gadgets.path("v1", &name(1)), None).await.unwrap_err().to_string();
    assert!(error.contains("Gadget default/w-00001: cannot convert from v1alpha1 to v1beta1"), "{error}");
    assert!(error.contains("spec.size: not an integer: \"many\""), "{error}");
    assert_eq!(read().await, expected(0, "v1", 0), "another object");
    send(&client, "DELETE", &gadgets.path("v1alpha1", &name(1)), None).await;
    webhook.end().await;
}

/// Converts by changing apiVersion alone, unless `spec.mode` asks for something else.
struct Moody {
    group: String,
    hangs: CancellationToken,
}

impl Convertible for Moody {
    fn convert(&self, mut object: Value, version: &str) -> Result<Value, Error> {
        let mode = object["spec"]["mode"].as_str().unwrap_or_default().to_owned();
        assert_ne!(mode, "panic", "asked to panic");
        if mode == "rename" {
            object["metadata"]["name"] = "another".into();
        }
        while mode == "hang" && !self.hangs.is_cancelled() {
            std::thread::sleep(Duration::from_millis(10));
        }
        object["apiVersion"] = format!("{}/{version}", self.group).into();
        Ok(object)
    }
}

async fn a_bad_converter_is_the_error_of_its_own_request(lab: Lab) {
    let (cluster, gadgets) = (lab.shared(), Gadgets { plural: "moodygadgets" });
    let client = cluster.client(0).unwrap();
    let (stop, hangs) = (CancellationToken::new(), CancellationToken::new());
    let moody = Moody { group: gadgets.group(), hangs: hangs.clone() };
    let converter = Converter::new(gadgets.group(), "Gadget", VERSIONS, moody);
    let live = Arc::new(LiveConverters::new(Converters::new([converter]).unwrap()));
    let file = |name: &str| cluster.dir().join(name);
    let certificate = CertificateFiles::open(file("webhook.crt"), file("webhook.key")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let settings = Settings { timeout: Duration::from_secs(3), abandoned: 2, ..Settings::default() };
    let server = Server::new(live).settings(settings).serve(listener, Arc::new(certificate), stop.clone());
    let served = tokio::spawn(server);
    send(&client, "POST", CRDS, Some(&gadgets.crd(cluster, port))).await;
    gadgets.served(&client).await;
    for mode in ["good", "panic", "rename", "hang"] {
        let mut object = gadgets.object(0);
        object["metadata"]["name"] = mode.into();
        object["spec"]["mode"] = mode.into();
        send(&client, "POST", &gadgets.path("v1alpha1", ""), Some(&object)).await;
    }
    let get = |mode: &'static str| {
        let path = gadgets.path("v1beta1", mode);
        let client = client.clone();
        async move { try_send(&client, "GET", &path, None).await.map_err(|error| error.to_string()) }
    };
    let hanging = get("hang");
    let others = async {
        for (mode, expected) in [
            ("panic", "Gadget default/panic: the converter panicked"),
            ("rename", "changed metadata.name; only labels and annotations may change"),
        ] {
            let error = get(mode).await.unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert_eq!(get("good").await.unwrap()["metadata"]["name"], "good");
        }
    };
    let (hung, ()) = futures::join!(hanging, others);
    let error = hung.unwrap_err();
    assert!(error.contains("Gadget default/hang: the conversion took longer than 3s"), "{error}");
    assert_eq!(get("good").await.unwrap()["metadata"]["name"], "good");
    // A list contains all of them, so it fails as a whole and names one.
    let error = try_send(&client, "GET", &gadgets.path("v1beta1", ""), None).await.unwrap_err().to_string();
    assert!(error.contains("Gadget default/"), "{error}");
    send(&client, "GET", &gadgets.path("v1alpha1", ""), None).await;
    hangs.cancel();
    for mode in ["good", "panic", "rename", "hang"] {
        send(&client, "DELETE", &gadgets.path("v1alpha1", mode), None).await;
    }
    stop.cancel();
    served.await.unwrap().unwrap();
}
