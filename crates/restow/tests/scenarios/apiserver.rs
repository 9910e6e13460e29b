//! `restow apiserver` as a process, used by kubectl, restow and scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use restow_lab::{ClusterSpec, Encryption};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};

use crate::controller::{Controller, define, is, migrations};
use crate::keys;
use crate::support::{Ran, Restow, Widgets, cluster, create_all, lab, name, send, shared, try_send, wait};

/// How long a start or an end may take on a busy machine.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_restow"));
    command.arg("apiserver").args(args).env_remove("RESTOW_LOG").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn run(args: &[&str]) -> Ran {
    let ended = tokio::time::timeout(PROCESS_TIMEOUT, command(args).output()).await.expect("an end");
    ended.unwrap().into()
}

/// A server that runs.
struct Running {
    child: Child,
    stderr: ChildStderr,
    welcome: String,
    kubeconfig: PathBuf,
}

impl Running {
    /// Starts one in a directory and waits until it says that it serves.
    async fn start(dir: &Path, more: &[&str]) -> Self {
        let data = dir.join("data").display().to_string();
        let kubeconfig = dir.join("kubeconfig");
        let shown = kubeconfig.display().to_string();
        let args = ["--data-dir", &data, "--listen", "127.0.0.1:0", "--write-kubeconfig", &shown];
        let mut child = command(&[&args, more].concat()).spawn().unwrap();
        let (stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let mut lines = BufReader::new(stdout).lines();
        let mut welcome = String::new();
        let read = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                welcome += &(line + "\n");
                if welcome.contains("kubectl get") {
                    return true;
                }
            }
            false
        };
        if !tokio::time::timeout(PROCESS_TIMEOUT, read).await.expect("a start in time") {
            let mut told = String::new();
            stderr.read_to_string(&mut told).await.unwrap();
            panic!("it did not start: {told}");
        }
        Self { child, stderr, welcome, kubeconfig }
    }

    /// The address it serves on.
    fn url(&self) -> &str {
        let url = self.welcome.split_whitespace().find(|word| word.starts_with("https://"));
        url.expect("an address").trim_end_matches(';')
    }

    async fn client(&self) -> Client {
        let file = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// Ends it as systemd does: its exit code, and what it said.
    async fn terminate(mut self) -> (Option<i32>, String) {
        let pid = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let ended =
            tokio::time::timeout(PROCESS_TIMEOUT, self.child.wait()).await.expect("an end in time").unwrap();
        let mut told = String::new();
        self.stderr.read_to_string(&mut told).await.unwrap();
        (ended.code(), told)
    }
}

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn stored_objects_survive_a_restart() {
    let dir = dir();
    let server = Running::start(dir.path(), &[]).await;
    assert!(server.welcome.starts_with("serving on https://127.0.0.1:"), "{}", server.welcome);
    assert!(server.welcome.contains(&format!("export KUBECONFIG={}", server.kubeconfig.display())));
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "b"}});
    let path = "/api/v1/namespaces/default/configmaps";
    let made = send(&server.client().await, "POST", path, Some(&object)).await;
    let (code, told) = server.terminate().await;
    assert_eq!(code, Some(0), "{told}");
    let audit = std::fs::read_to_string(dir.path().join("data/audit.log")).unwrap();
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let write =
        lines.iter().find(|line| line["objectRef"]["resource"] == "configmaps").expect("an audit line");
    assert_eq!(
        (write["verb"].as_str(), write["responseStatus"]["code"].as_i64()),
        (Some("create"), Some(201))
    );
    assert!(!audit.contains("\"a\":\"b\""), "no content is written down");

    let old = std::fs::read_to_string(dir.path().join("kubeconfig")).unwrap();
    let server = Running::start(dir.path(), &[]).await;
    let new = std::fs::read_to_string(dir.path().join("kubeconfig")).unwrap();
    let token = |text: &str| text.lines().find(|line| line.contains("token:")).map(str::to_owned);
    assert_eq!(token(&old), token(&new), "the admin's token stays");
    let kept = send(&server.client().await, "GET", &format!("{path}/kept"), None).await;
    assert_eq!(kept["metadata"]["uid"], made["metadata"]["uid"]);
    server.terminate().await;
}

#[tokio::test]
async fn users_have_the_permissions_that_rbac_grants() {
    let dir = dir();
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "alice-token,alice,1,\"dev\"\n").unwrap();
    let server = Running::start(dir.path(), &["--token-auth-file", tokens.to_str().unwrap()]).await;
    let admin = server.client().await;
    let file = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.auth_info.token = Some("alice-token".to_owned().into());
    let alice = Client::try_from(config).unwrap();
    let secrets = "/api/v1/namespaces/default/secrets";
    let refused = try_send(&alice, "GET", secrets, None).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!(status.code, 403);
    assert_eq!(
        status.message,
        "secrets is forbidden: User \"alice\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\""
    );
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "dev"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    send(&admin, "POST", bindings, Some(&binding)).await;
    wait("the binding to be in force", || async { try_send(&alice, "GET", secrets, None).await.is_ok() })
        .await;
    server.terminate().await;
}

#[tokio::test]
async fn kubectl_and_restow_work_with_the_embedded_server() {
    let Some((_, kubectl)) =
        restow_lab::assets::kubectl_or_skip("kubectl_and_restow_work_with_the_embedded_server")
    else {
        return;
    };
    let dir = dir();
    let server = Running::start(dir.path(), &[]).await;
    let kubectl = |args: &'static [&'static str]| {
        let mut command = Command::new(&kubectl);
        command.args(args).env("KUBECONFIG", &server.kubeconfig).env("HOME", dir.path());
        async move { Ran::from(command.output().await.unwrap()).expect(0).stdout }
    };
    let namespaces = kubectl(&["get", "namespaces"]).await;
    assert!(namespaces.contains("default") && namespaces.contains("Active"), "{namespaces}");
    kubectl(&["create", "configmap", "c", "--from-literal=a=b"]).await;
    assert_eq!(kubectl(&["get", "configmap", "c", "-o", "jsonpath={.data.a}"]).await, "b");
    assert!(kubectl(&["auth", "whoami"]).await.contains("restow:admin"));
    assert_eq!(kubectl(&["auth", "can-i", "delete", "nodes"]).await.trim(), "yes");

    let widgets = Widgets { plural: "embeddeds" };
    let client = server.client().await;
    widgets.define(&client).await;
    for name in ["a", "b"] {
        let object = json!({
            "apiVersion": format!("{}/v1", widgets.group()), "kind": "Widget", "metadata": {"name": name},
        });
        send(&client, "POST", &widgets.path("v1", ""), Some(&object)).await;
    }
    let restow = Restow::with_kubeconfig(server.kubeconfig.clone());
    let plan = restow.run(&["plan", &widgets.name(), "-o", "json"]).await.expect(0);
    assert!(plan.stdout.contains("embeddeds"), "{plan:?}");
    widgets.store_as(&client, "v2").await;
    let report = restow.migrate(&widgets.name(), &[]).await.expect(0).resource();
    assert_eq!(
        (report["rewritten"].as_u64(), report["verified"].as_bool()),
        (Some(2), Some(true)),
        "{report}"
    );
    server.terminate().await;
}

/// The controllers run on it as on any other cluster.
#[tokio::test]
async fn the_controllers_work_with_the_embedded_server() {
    let dir = dir();
    let server = Running::start(dir.path(), &[]).await;
    let client = server.client().await;
    define(&client).await;
    let widgets = Widgets { plural: "minded" };
    widgets.define(&client).await;
    widgets.create(&client, 20).await;
    let restow = Restow::with_kubeconfig(server.kubeconfig.clone());
    let name = widgets.name();
    let _controller = Controller::start(&restow, &["--resources", &name, "--pace", "fast"]).await;
    let verified = async |rewritten: usize| {
        wait("a verified migration", || async {
            let all = migrations(&client, &name).await;
            let progress = &all.first().unwrap_or(&Value::Null)["status"]["progress"];
            all.len() == 1 && is(&all[0], "Succeeded") && progress["rewritten"] == json!(rewritten)
        })
        .await;
    };
    verified(0).await;
    widgets.store_as(&client, "v2").await;
    verified(20).await;
    wait("storedVersions to be pruned", || async { widgets.stored_versions(&client).await == json!(["v2"]) })
        .await;
    server.terminate().await;
}

/// Two servers share an etcd: each sees what the other does, storage versions and keys are migrated on both.
#[tokio::test]
async fn two_servers_share_one_etcd() {
    const MANY: usize = 30;
    let assets = lab!();
    let etcd = cluster(&assets, ClusterSpec::new().store_only()).await;
    let (dir, url) = (dir(), etcd.etcd().url().to_owned());
    let config = dir.path().join("keys.yaml").display().to_string();
    let credentials = dir.path().join("credentials").display().to_string();
    let rotate = |keys_in_order: &[&str]| {
        let new = Encryption::aescbc(keys_in_order);
        std::fs::write(&config, new.yaml()).unwrap();
        new
    };
    rotate(&["key1"]);
    let mut servers = Vec::new();
    for id in ["one", "two"] {
        let more = ["--etcd", &url, "--credentials-dir", &credentials, "--server-id", id];
        let more = [&more[..], &["--encryption-provider-config", &config]].concat();
        let dir = dir.path().join(id);
        std::fs::create_dir(&dir).unwrap();
        servers.push(Running::start(&dir, &more).await);
    }
    let (first, second) = (servers[0].client().await, servers[1].client().await);

    let widgets = Widgets { plural: "pairs" };
    widgets.define(&first).await;
    widgets.create(&first, MANY).await;
    widgets.store_as(&second, "v2").await;
    let restow = Restow::with_kubeconfig(servers[1].kubeconfig.clone());
    let report = restow.migrate(&widgets.name(), &["--prune-stored-versions"]).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["agreement"]), (&json!(MANY), &json!("storageversion")));
    assert_eq!(widgets.stored_as(&etcd).await, BTreeMap::from([(format!("{}/v2", widgets.group()), MANY)]));
    assert_eq!(widgets.stored_versions(&first).await, json!(["v2"]));

    let secret = |index| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name(index)}});
    create_all(&second, "/api/v1/namespaces/default/secrets", 0..MANY, secret).await;
    assert_eq!(keys::keys(&etcd).await, BTreeSet::from(["key1".to_owned()]));
    let new = rotate(&["key2", "key1"]);
    for server in [&first, &second] {
        wait("the new key to be taken up", || async {
            let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
            server.request_text(request).await.unwrap().contains(&new.hash())
        })
        .await;
    }
    // Each Lease says where its server is, so that nobody has to name them.
    let report = restow.migrate("secrets", &["--encrypted", "secrets"]).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(MANY), &json!(true)), "{report}");
    assert_eq!(report["encryption"]["checked"], true, "{report}");
    assert_eq!(report["encryption"]["configHash"], json!(new.hash()), "{report}");
    assert_eq!(report["encryption"]["servers"], json!(["one", "two"]), "{report}");
    assert_eq!(keys::keys(&etcd).await, BTreeSet::from(["key2".to_owned()]));
    for server in servers {
        assert_eq!(server.terminate().await.0, Some(0));
    }
}

/// What is stored of a custom resource is byte for byte what kube-apiserver stores, under the same key.
#[tokio::test]
async fn stored_bytes_equal_those_of_a_real_server() {
    let Some(real) = shared() else { return };
    let assets = lab!();
    let etcd = cluster(&assets, ClusterSpec::new().store_only()).await;
    let (dir, url) = (dir(), etcd.etcd().url().to_owned());
    let server = Running::start(dir.path(), &["--etcd", &url]).await;
    let widgets = Widgets { plural: "bytes" };
    let object = json!({
        "apiVersion": format!("{}/v1", widgets.group()), "kind": "Widget",
        "metadata": {
            "name": "all", "labels": {"b": "1", "a": "2"}, "annotations": {"x": "<&> \u{2028} ü"},
            "finalizers": ["example.com/kept"],
        },
        "spec": {
            "float": 1.5, "whole": 100.0, "small": 1e-7, "huge": 1e21, "negative": -0.25, "long": 12_345_678_901_i64,
            "list": [1, "two", {"z": 1, "a": null}], "text": "tab\t \"quote\" back\\ <b>&amp; \u{1}", "empty": {}, "none": [],
        },
    });
    let mut stored = Vec::new();
    for (client, etcd) in [(real.client(0).unwrap(), real), (server.client().await, &etcd)] {
        widgets.define(&client).await;
        let made = send(&client, "POST", &widgets.path("v1", ""), Some(&object)).await;
        let mut found = Vec::new();
        let each = |key: &str, bytes: &[u8]| {
            found.push((key.to_owned(), String::from_utf8(bytes.to_vec()).unwrap()))
        };
        etcd.etcd().for_each(&widgets.prefix(), each).await.unwrap();
        let (key, text) = found.pop().expect("one object");
        assert!(found.is_empty());
        let (uid, at) = (&made["metadata"]["uid"], &made["metadata"]["creationTimestamp"]);
        stored.push((key, text.replace(uid.as_str().unwrap(), "UID").replace(at.as_str().unwrap(), "TIME")));
    }
    assert_eq!(stored[0], stored[1]);
    server.terminate().await;
}

#[tokio::test]
async fn invalid_settings_are_explained() {
    let dir = dir();
    let server = Running::start(dir.path(), &[]).await;
    let data = dir.path().join("data").display().to_string();
    let other = dir.path().join("other").display().to_string();
    let file = dir.path().join("file").display().to_string();
    std::fs::write(&file, "one,two\n").unwrap();
    let address = server.url().strip_prefix("https://").unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--data-dir", &data, "--listen", "127.0.0.1:0"], 1, "another server is using"),
        (&["--data-dir", &other, "--listen", address], 1, "cannot listen on"),
        (&["--data-dir", &file], 1, "cannot be used"),
        (
            &["--data-dir", &other, "--listen", "127.0.0.1:0", "--token-auth-file", &file],
            2,
            "line 1 has 2 columns",
        ),
        (&["--data-dir", &other, "--listen", "127.0.0.1:0", "--token-auth-file", "/none"], 2, "cannot read"),
        (
            &["--data-dir", &other, "--listen", "127.0.0.1:0", "--encryption-provider-config", &file],
            2,
            "file",
        ),
        (
            &["--data-dir", &other, "--listen", "127.0.0.1:0", "--etcd", "ftp://127.0.0.1:1"],
            2,
            "invalid etcd endpoint",
        ),
        (&["--listen", "nowhere"], 2, "invalid value"),
    ];
    for (args, code, message) in cases {
        let ran = run(args).await.expect(*code);
        assert!(ran.stderr.contains(message), "{args:?}: {ran:#?}");
        assert!(!ran.stderr.contains("panicked"), "{args:?}: {ran:#?}");
    }
    server.terminate().await;
}
