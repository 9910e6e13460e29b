//! The server as a process, on a real kube-apiserver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use http::Request;
use restow_lab::{Cluster, ClusterSpec, assets, suite};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const SHIPS: &str = "/apis/fleet.example.com/v1/namespaces/default/ships";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fleet-apiserver-0";

/// A server process that is killed when it is dropped.
struct Process(Child);

impl Process {
    fn start(cluster: &Cluster, dir: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aggregated-apiserver"));
        command.arg("--kubeconfig").arg(cluster.kubeconfig(0, "admin"));
        command.arg("--data-dir").arg(dir).arg("--cert-dir").arg(dir);
        Self(command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    async fn end(&mut self) -> ExitStatus {
        let pid = Pid::from_raw(self.0.id().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        self.ended().await
    }

    async fn ended(&mut self) -> ExitStatus {
        let mut ended = None;
        let child = std::sync::Mutex::new(&mut self.0);
        suite::wait(Duration::from_secs(60), "the server to end", || {
            ended = child.lock().unwrap().try_wait().unwrap();
            std::future::ready(ended.is_some())
        })
        .await;
        ended.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

async fn ask(client: &kube::Client, method: &str, path: &str, body: &Value) -> kube::Result<Value> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    client.request(request.body(body).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_serves_and_deletes_its_lease_when_it_stops() {
    let Some(assets) = assets::or_skip("the example as a process") else { return };
    let spec = ClusterSpec::new().front_proxy().storage_version_api();
    let cluster = Cluster::start(&assets, spec).await.unwrap();
    let client = cluster.client(0).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let mut printed = Process::start(&cluster, dir.path(), &["--listen", &listen, "--print-manifests"]);
    let manifests: Value = serde_json::from_reader(printed.0.stdout.take().unwrap()).unwrap();
    for object in manifests["items"].as_array().unwrap() {
        let all = match object["kind"].as_str().unwrap() {
            "Service" => "/api/v1/namespaces/default/services",
            _ => "/apis/apiregistration.k8s.io/v1/apiservices",
        };
        ask(&client, "POST", all, object).await.unwrap();
    }

    let mut first = Process::start(&cluster, dir.path(), &["--listen", &listen]);
    let ship = json!({
        "apiVersion": "fleet.example.com/v1", "kind": "Ship", "metadata": {"name": "a"}, "spec": {"port": "Kiel"},
    });
    suite::wait(Duration::from_secs(90), "a ship to be made", || async {
        ask(&client, "POST", SHIPS, &ship).await.is_ok()
    })
    .await;
    assert!(ask(&client, "GET", LEASE, &Value::Null).await.is_ok());
    // A second process on the same file does not start.
    let mut second = Process::start(
        &cluster,
        dir.path(),
        &["--listen", "127.0.0.1:0", "--server-id", "fleet-apiserver-1"],
    );
    assert!(!second.ended().await.success());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut second.0.stderr.take().unwrap(), &mut said).unwrap();
    assert!(said.contains("in use by another process"), "{said}");

    assert!(first.end().await.success());
    assert!(ask(&client, "GET", LEASE, &Value::Null).await.is_err(), "it has not left");
    let _again = Process::start(&cluster, dir.path(), &["--listen", &listen, "--storage-version", "v2"]);
    suite::wait(Duration::from_secs(90), "the ship to be there again", || async {
        ask(&client, "GET", &format!("{SHIPS}/a"), &Value::Null)
            .await
            .is_ok_and(|a| a["spec"]["port"] == "Kiel")
    })
    .await;
}
