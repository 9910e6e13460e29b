//! Starts `restow controller` as a process, and reads the objects it works on.

use std::process::Stdio;
use std::time::Duration;

use restow_lab::Cluster;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use crate::support::{CRDS, Restow, send, try_send, wait};

/// The path of all migrations.
pub(crate) const MIGRATIONS: &str = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";
/// The path of all storage states.
pub(crate) const STATES: &str = "/apis/migration.k8s.io/v1alpha1/storagestates";

/// Replaces definitions of the same names that were there before.
pub(crate) async fn define_again(client: &kube::Client) {
    for crd in restow_api::crds() {
        let name = crd.metadata.name.clone().unwrap();
        let old = send(client, "GET", &format!("{CRDS}/{name}"), None).await;
        let mut new = serde_json::to_value(crd).unwrap();
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        send(client, "PUT", &format!("{CRDS}/{name}"), Some(&new)).await;
    }
    wait("the new definitions to be in force", || async {
        let columns =
            send(client, "GET", &format!("{CRDS}/storageversionmigrations.migration.k8s.io"), None).await;
        columns["status"]["conditions"].as_array().is_some_and(|conditions| {
            conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
        })
    })
    .await;
}

/// Installs the definitions and waits until they are served.
pub(crate) async fn define(client: &kube::Client) {
    for crd in restow_api::crds() {
        send(client, "POST", CRDS, Some(&serde_json::to_value(crd).unwrap())).await;
    }
    wait("the definitions to be served", || async {
        try_send(client, "GET", MIGRATIONS, None).await.is_ok()
            && try_send(client, "GET", STATES, None).await.is_ok()
    })
    .await;
}

/// A running controller.
pub(crate) struct Controller {
    child: Child,
    address: String,
}

impl Controller {
    /// Starts one at the first server, without election unless the arguments say so.
    pub(crate) async fn start(restow: &Restow, args: &[&str]) -> Self {
        let elects = args.iter().any(|arg| arg.starts_with("--leader-elect"));
        let mut all = vec!["controller", "--listen", "127.0.0.1:0"];
        all.extend((!elects).then_some("--leader-elect=false"));
        all.extend(args);
        let mut command = restow.command(&all);
        command.stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next_line().await.unwrap().expect("a controller that says where it listens");
            eprintln!("controller: {line}");
            if let Some((_, address)) = line.split_once("address=") {
                break address.to_owned();
            }
        };
        // The rest is kept for whoever looks into a failed test.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("controller: {line}");
            }
        });
        Self { child, address }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// What it serves under a path: the status line and all that follows.
    pub(crate) async fn get(&self, path: &str) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(&self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: restow\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Ends it at once, as a node that fails would.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Ends it as a rolling update would, and says whether that went well.
    pub(crate) async fn stop(mut self) -> bool {
        self.signal(rustix::process::Signal::TERM);
        tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await.unwrap().unwrap().success()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

/// A storage state's persisted and current hashes, each hash given its version's name where it is one of these.
pub(crate) async fn state(
    client: &kube::Client,
    name: &str,
    versions: &[(&str, &str)],
) -> Option<(String, String)> {
    let state = try_send(client, "GET", &format!("{STATES}/{name}"), None).await.ok()?;
    let named = |hash: &Value| {
        let hash = hash.as_str().unwrap_or_default().to_owned();
        versions.iter().find(|(known, _)| *known == hash).map_or(hash, |(_, name)| (*name).to_owned())
    };
    let status = &state["status"];
    let persisted: Vec<String> =
        status["persistedStorageVersionHashes"].as_array()?.iter().map(named).collect();
    Some((persisted.join(" "), named(&status["currentStorageVersionHash"])))
}

/// All migrations of a resource.
pub(crate) async fn migrations(client: &kube::Client, resource: &str) -> Vec<Value> {
    let all = send(client, "GET", MIGRATIONS, None).await;
    let of = |object: &&Value| {
        let of = &object["spec"]["resource"];
        let (group, name) =
            (of["group"].as_str().unwrap_or_default(), of["resource"].as_str().unwrap_or_default());
        resource == if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
    };
    all["items"].as_array().unwrap().iter().filter(of).cloned().collect()
}

/// Whether a condition of a migration is True.
pub(crate) fn is(migration: &Value, condition: &str) -> bool {
    let conditions = migration["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|one| one["type"] == condition && one["status"] == "True")
}

/// Makes a migration of a resource.
pub(crate) async fn ask_for(client: &kube::Client, name: &str, resource: &str) -> Value {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let object = json!({
        "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
        "metadata": {"name": name},
        "spec": {"resource": {"group": group, "version": "v1", "resource": plural}},
    });
    send(client, "POST", MIGRATIONS, Some(&object)).await
}

/// One migration as it is now.
pub(crate) async fn migration(client: &kube::Client, name: &str) -> Value {
    send(client, "GET", &format!("{MIGRATIONS}/{name}"), None).await
}

/// Waits until a condition of a migration is True, and returns the migration.
pub(crate) async fn wait_for(client: &kube::Client, name: &str, condition: &str) -> Value {
    wait(&format!("{name} to be {condition}"), || async { is(&migration(client, name).await, condition) })
        .await;
    migration(client, name).await
}

/// As admin at the first server of a cluster with the definitions installed.
pub(crate) async fn prepared(cluster: &Cluster) -> (kube::Client, Restow) {
    let client = cluster.client(0).unwrap();
    define(&client).await;
    (client, Restow::new(cluster))
}
