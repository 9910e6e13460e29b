//! Migrations and StorageStates as objects: what their CRDs validate, and how they are shown.

use std::process::Stdio;

use jiff::Timestamp;
use kube::ResourceExt as _;
use restow_api::{StorageState, StorageVersionMigration};
use restow_lab::{Cluster, ClusterSpec, Part};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use crate::cli::grant;
use crate::controller::{MIGRATIONS, STATES, define};
use crate::support::{CRDS, Lab, Restow, cluster, lab, patch, send, try_send};
use crate::terminal::{OnTerminal, interrupt};

scenarios! {
    status_is_printed_in_every_format,
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

/// A migration of `widgets.example.com`.
pub(crate) fn migration(name: &str) -> Value {
    json!({
        "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
        "metadata": {"name": name},
        "spec": {"resource": {"group": "example.com", "version": "v1", "resource": "widgets"}},
    })
}

fn state(name: &str, group: &str, resource: &str) -> Value {
    json!({
        "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageState", "metadata": {"name": name},
        "spec": {"resource": {"group": group, "resource": resource}},
    })
}

/// The status of a migration as a controller writes it.
pub(crate) fn standing(phase: &str, reason: &str, message: &str, rewritten: u64, left: u64) -> Value {
    let is = |type_: &str| if phase == type_ { "True" } else { "False" };
    let now = Timestamp::now();
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": is(type_), "reason": reason, "message": message, "lastUpdateTime": now,
        })
    };
    let object = |index: u64| {
        json!({
            "namespace": "default", "name": format!("w-{index}"), "uid": "u", "reason": "Forbidden",
            "message": "admission webhook \"policy.example.com\" denied the request: no owner is named in its labels",
        })
    };
    let done = rewritten + left;
    json!({"status": {
        "phase": phase,
        "conditions": [condition("Running"), condition("Succeeded"), condition("Failed")],
        "progress": {
            "listed": done, "rewritten": rewritten, "current": 0, "skipped": 0, "quarantined": left,
            "remaining": 1000 - done, "percent": format!("{}%", done / 10), "storageVersion": "v1",
            "agreement": "direct", "startedAt": now - jiff::SignedDuration::from_secs(10), "updatedAt": now,
            "estimatedCompletion": now + jiff::SignedDuration::from_secs(3600),
        },
        "quarantined": (0..left.min(100)).map(object).collect::<Vec<_>>(),
    }})
}

pub(crate) async fn create(client: &kube::Client, name: &str) {
    send(client, "POST", MIGRATIONS, Some(&migration(name))).await;
}

pub(crate) async fn set(client: &kube::Client, name: &str, status: &Value) {
    patch(client, &format!("{MIGRATIONS}/{name}/status"), status).await;
}

pub(crate) async fn get(client: &kube::Client, name: &str) -> Value {
    send(client, "GET", &format!("{MIGRATIONS}/{name}"), None).await
}

// Only on a real kube-apiserver: it runs kubectl.
#[tokio::test]
async fn the_crds_validate_and_default_as_documented() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);

    for args in [&["status"][..], &["suspend", "a"], &["retry", "a"], &["cancel", "a"], &["init"]] {
        let ran = restow.run(args).await.expect(1);
        assert!(
            ran.stderr.contains("does not serve storageversionmigrations of migration.k8s.io/v1alpha1"),
            "{ran:#?}"
        );
        assert!(ran.stderr.contains("run: restow install --image IMAGE --apply"), "{ran:#?}");
        assert!(ran.stderr.contains("for only the CRDs: restow install --crds --apply"), "{ran:#?}");
        assert_eq!(ran.stdout, "");
    }
    // What is advised works.
    restow.run(&["install", "--image", "IMAGE", "--dry-run"]).await.expect(0);
    restow.run(&["install", "--crds", "--apply", "--wait"]).await.expect(0);
    restow.run(&["status"]).await.expect(0);
    for crd in restow_api::crds() {
        let crd = send(&client, "GET", &format!("{CRDS}/{}", crd.name_any()), None).await;
        assert_eq!(condition(&crd, "NonStructuralSchema"), None, "{crd:#}");
    }
    rules(&client).await;
    predecessor(&cluster, &client, &restow).await;
    if let Some(kubectl) = &assets.kubectl {
        let run = |args: &'static [&'static str]| {
            let mut command = tokio::process::Command::new(kubectl);
            command.args(args).env("KUBECONFIG", cluster.kubeconfig(0, "admin")).stdin(Stdio::null()).output()
        };
        let table = String::from_utf8(run(&["get", "svm"]).await.unwrap().stdout).unwrap();
        let header: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(header, ["NAME", "RESOURCE", "PHASE", "PROGRESS", "REMAINING", "AGE"], "{table}");
        let table = String::from_utf8(run(&["get", "sst"]).await.unwrap().stdout).unwrap();
        let header: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(
            header,
            ["NAME", "CURRENT", "PERSISTED", "CURRENT", "HASH", "AGREEMENT", "HEARTBEAT"],
            "{table}"
        );
    }
    permissions(&cluster, &client).await;
}

/// What the server itself refuses.
async fn rules(client: &kube::Client) {
    create(client, "fixed").await;
    let fixed = format!("{MIGRATIONS}/fixed");
    for change in [json!({"version": "v2"}), json!({"resource": "gadgets"}), json!({"group": null})] {
        let body = json!({"spec": {"resource": change}});
        let refused = try_send(client, "PATCH", &fixed, Some(&body)).await.unwrap_err().to_string();
        assert!(refused.contains("spec.resource is immutable"), "{refused}");
    }
    patch(client, &fixed, &json!({"spec": {"storageVersionHash": "a", "suspend": true}})).await;

    for wrong in [
        state("widgets", "example.com", "widgets"),
        state("secrets.", "", "secrets"),
        state("example.com.widgets", "example.com", "widgets"),
    ] {
        let refused = try_send(client, "POST", STATES, Some(&wrong)).await.unwrap_err().to_string();
        assert!(
            refused.contains("must be <resource>.<group>") || refused.contains("metadata.name"),
            "{refused}"
        );
    }
    let refused = try_send(client, "POST", STATES, Some(&state("widgets", "example.com", "widgets"))).await;
    assert!(refused.unwrap_err().to_string().contains("the name must be <resource>.<group>"));
    send(client, "POST", STATES, Some(&state("secrets", "", "secrets"))).await;
    let mut without_group = state("pods", "", "pods");
    without_group["spec"]["resource"].as_object_mut().unwrap().remove("group");
    send(client, "POST", STATES, Some(&without_group)).await;
    send(client, "POST", STATES, Some(&state("widgets.example.com", "example.com", "widgets"))).await;
}

/// An object as the predecessor makes and ends it, with none of restow's fields.
async fn predecessor(cluster: &Cluster, client: &kube::Client, restow: &Restow) {
    let mut theirs = migration("");
    theirs["metadata"] = json!({"generateName": "widgets.example.com-"});
    let made = send(client, "POST", MIGRATIONS, Some(&theirs)).await;
    let name = made["metadata"]["name"].as_str().unwrap();
    let conditions = json!({"status": {"conditions": [
        {"type": "Running", "status": "False", "lastUpdateTime": "2023-03-01T10:00:00Z"},
        {"type": "Succeeded", "status": "True", "lastUpdateTime": "2023-03-01T10:05:00Z"},
    ]}});
    set(client, name, &conditions).await;
    let kept: StorageVersionMigration = serde_json::from_value(get(client, name).await).unwrap();
    assert!(kept.is_finished() && kept.status.unwrap().progress.is_none());
    let states: kube::Api<StorageState> = kube::Api::all(cluster.client(0).unwrap());
    assert_eq!(states.get("secrets").await.unwrap().spec.resource.to_string(), "secrets");

    let ran = restow.run(&["status", name]).await.expect(0);
    assert!(ran.stdout.contains(&format!("{name}  Succeeded")), "{ran:#?}");
    let ran = restow.run(&["retry", name]).await.expect(2);
    assert!(ran.stderr.contains("has succeeded"), "{ran:#?}");
}

/// What is missing is named, verb by verb.
async fn permissions(cluster: &Cluster, client: &kube::Client) {
    let alice = Restow::with_kubeconfig(cluster.kubeconfig(0, "alice"));
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let denied = async |args: &[&str], verb: &str, resource: &str| {
        let ran = alice.run(args).await.expect(1);
        let wanted = format!("you may not {verb} {resource}.migration.k8s.io");
        assert!(ran.stderr.contains(&wanted), "{args:?}: {ran:#?}");
        let granting =
            format!("{{apiGroups: [\"migration.k8s.io\"], resources: [{resource:?}], verbs: [{verb:?}]}}");
        assert!(ran.stderr.contains(&granting), "{args:?}: {ran:#?}");
    };
    denied(&["status"], "list", "storageversionmigrations").await;
    denied(&["init"], "list", "storageversionmigrations").await;
    let group = "migration.k8s.io";
    grant(client, "list", &[rule(group, "storageversionmigrations", &["list"])]).await;
    denied(&["status"], "list", "storagestates").await;
    denied(&["resume", "fixed"], "patch", "storageversionmigrations").await;
    denied(&["cancel", "fixed"], "delete", "storageversionmigrations").await;
    let look = [
        rule("apiextensions.k8s.io", "customresourcedefinitions", &["list"]),
        rule("apiregistration.k8s.io", "apiservices", &["list"]),
    ];
    grant(client, "look", &look).await;
    denied(&["init", "secrets"], "create", "storageversionmigrations").await;
    grant(client, "patch", &[rule(group, "storageversionmigrations", &["patch"])]).await;
    denied(&["resume", "fixed", "--wait"], "watch", "storageversionmigrations").await;
    let ran = alice.run(&["init", "secrets", "--owner", "clusterrole/view"]).await.expect(1);
    assert!(ran.stderr.contains("you may not get clusterroles.rbac.authorization.k8s.io"), "{ran:#?}");
}

async fn status_is_printed_in_every_format(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);
    define(&client).await;

    let ran = restow.run(&["status"]).await.expect(0);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("to create them, run: restow init"), "{ran:#?}");

    let long = "customresourcedefinitions.apiextensions.k8s.io-abcde";
    for name in ["widgets.example.com-done", "widgets.example.com-left", "mine", "untouched", long] {
        create(&client, name).await;
    }
    set(&client, "widgets.example.com-done", &standing("Succeeded", "Verified", "", 1000, 0)).await;
    set(
        &client,
        "widgets.example.com-left",
        &standing("Failed", "Quarantined", "5 objects were left", 995, 5),
    )
    .await;
    set(&client, "mine", &standing("Running", "Rewriting", "", 420, 0)).await;
    set(&client, long, &standing("Waiting", "WaitingForAgreement", "api-1 stores v1", 0, 0)).await;
    let hashes = json!({"status": {
        "persistedStorageVersionHashes": ["gIwvi5rymmg=", "r2yiGXH7wu8="], "agreement": "direct",
        "currentStorageVersionHash": "r2yiGXH7wu8=", "lastHeartbeatTime": Timestamp::now(),
    }});
    for (name, group, resource) in [("widgets.example.com", "example.com", "widgets"), ("pods", "", "pods")] {
        send(&client, "POST", STATES, Some(&state(name, group, resource))).await;
        patch(&client, &format!("{STATES}/{name}/status"), &hashes).await;
    }
    let settled = json!({"status": {"persistedStorageVersionHashes": ["r2yiGXH7wu8="]}});
    patch(&client, &format!("{STATES}/pods/status"), &settled).await;

    let table = restow.run(&["status"]).await.expect(0).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("MIGRATION") && lines[1].starts_with("mine"), "{table}");
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(words[..4], ["mine", "Running", "42%", "420/1,000"], "{table}");
    assert_eq!(lines[2], "  migrates widgets.example.com", "{table}");
    assert!(lines[3].starts_with("  Rewriting, 42/s, ") && lines[3].ends_with(" left"), "{table}");
    for line in [
        "  Quarantined: 5 objects were left",
        "  and 2 more; -o wide lists 5",
        "  once fixed, run: restow retry widgets.example.com-left",
        "  WaitingForAgreement: api-1 stores v1",
        "1 of 5 not started by a controller yet",
        "  persisted: gIwvi5rymmg=, r2yiGXH7wu8=",
    ] {
        assert!(lines.contains(&line), "no {line:?} in\n{table}");
    }
    let unsettled = lines.iter().position(|line| line.starts_with("widgets.example.com  no")).unwrap();
    assert!(lines[unsettled + 2].starts_with("pods                 yes"), "{table}");

    let wide = restow.run(&["status", "-o", "wide"]).await.expect(0).stdout;
    assert!(wide.contains("quarantined: default/w-4: Forbidden: admission webhook"), "{wide}");
    let report = restow.run(&["status", "widgets.example.com", "-o", "json"]).await.expect(0).report();
    let left = report["migrations"].as_array().unwrap().iter().find(|m| m["phase"] == "Failed").unwrap();
    assert_eq!((&left["quarantined"], &left["reason"]), (&json!(5), &json!("Quarantined")), "{report:#}");
    assert_eq!(report["storageStates"][0]["settled"], false, "{report:#}");
    assert_eq!(report["storageStates"].as_array().unwrap().len(), 1, "{report:#}");
    let names = restow.run(&["status", "-o", "name"]).await.expect(0).stdout;
    assert!(names.contains("storageversionmigration.migration.k8s.io/mine\n"), "{names}");
    assert!(names.contains("storagestate.migration.k8s.io/pods\n"), "{names}");
    let yaml = restow.run(&["status", "pods", "-o", "yaml"]).await.expect(0).stdout;
    assert!(yaml.contains("settled: true"), "{yaml}");
    let ran = restow.run(&["status", "widgts.example.com"]).await.expect(2);
    assert!(ran.stderr.contains("did you mean widgets.example.com or "), "{ran:#?}");

    narrow(&restow).await;
    watch_prints_lines_into_a_pipe(&cluster, &client, &restow).await;
    watch_redraws_on_a_terminal(&cluster.client(0).unwrap(), &restow).await;
}

/// On a terminal of 80 columns, nothing is wider, and all is there.
async fn narrow(restow: &Restow) {
    let (code, shown) = OnTerminal::start(restow.command(&["status", "-o", "table"]), 80, 24).end().await;
    assert_eq!(code, 0, "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains("customresourcedefinitions.apiextensions.k8s.io-abcde"), "{shown}");
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert!(words.join(" ").contains("denied the request: no owner is named in its labels"), "{shown}");
}

/// The lines that a program writes, one by one.
struct Said {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Those that nobody has asked for yet.
    earlier: Vec<String>,
}

impl Said {
    fn start(mut command: tokio::process::Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, earlier: Vec::new() }
    }

    /// Reads on until a line that has this text, if none has it already.
    async fn until(&mut self, text: &str) -> String {
        if let Some(found) = self.earlier.iter().position(|line| line.contains(text)) {
            return self.earlier.remove(found);
        }
        let read = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(text) {
                    return line;
                }
                self.earlier.push(line);
            }
            panic!("it ended without a line that has {text:?}: {:#?}", self.earlier)
        };
        let patience = std::time::Duration::from_secs(90);
        tokio::time::timeout(patience, read).await.unwrap_or_else(|_| panic!("no line has {text:?}"))
    }
}

async fn watch_prints_lines_into_a_pipe(cluster: &Cluster, client: &kube::Client, restow: &Restow) {
    let mut lines = Said::start(restow.command(&["status", "-w"]));
    let mut documents = Said::start(restow.command(&["status", "-w", "mine", "-o", "json"]));
    assert!(lines.until("mine: ").await.starts_with("mine: Running, 42%, 420/1,000, 42/s, "));
    lines.until("storage state widgets.example.com: not settled; current: r2yiGXH7wu8=; persisted").await;
    lines.until("untouched: Waiting: no controller has started it yet").await;
    documents.until("\"done\":420").await;
    set(client, "mine", &standing("Running", "Rewriting", "", 640, 0)).await;
    lines.until("mine: Running, 64%, 640/1,000").await;

    // What changes while the server is away is seen when it is back.
    cluster.restart(Part::ApiServer(0)).await.unwrap();
    let client = &cluster.client(0).unwrap();
    set(client, "mine", &standing("Failed", "Quarantined", "3 objects were left", 997, 3)).await;
    let line = lines.until("mine: Failed").await;
    assert_eq!(line, "mine: Failed, 100%, 1,000/1,000, 3 quarantined: Quarantined: 3 objects were left");
    let document: Value = serde_json::from_str(&documents.until("Failed").await).unwrap();
    assert_eq!(document["migration"]["quarantined"], 3);
    send(client, "DELETE", &format!("{MIGRATIONS}/mine"), None).await;
    lines.until("mine: deleted").await;
    assert_eq!(
        documents.until("deleted").await,
        "{\"deleted\":\"storageversionmigration.migration.k8s.io/mine\"}"
    );

    interrupt(&lines.child);
    assert_eq!(lines.child.wait().await.unwrap().code(), Some(130));
    interrupt(&documents.child);
    assert_eq!(documents.child.wait().await.unwrap().code(), Some(130));
    restow.run(&["status", "-w", "untouched", "--timeout", "1s"]).await.expect(0);
}

async fn watch_redraws_on_a_terminal(client: &kube::Client, restow: &Restow) {
    create(client, "drawn").await;
    let terminal = OnTerminal::start(restow.command(&["status", "-w", "drawn"]), 80, 24);
    terminal.shows("drawn      Waiting").await;
    set(client, "drawn", &standing("Running", "Rewriting", "", 250, 0)).await;
    terminal.shows("drawn      Running   25%  250/1,000").await;
    interrupt(&terminal.child);
    let (code, written) = terminal.end().await;
    assert_eq!(code, 130, "{written}");
    // All four lines are drawn over: the header, the row, its resource, and that no controller has started it.
    assert!(written.contains("\x1b[4FMIGRATION"), "{written:?}");
    let last = written.rsplit("MIGRATION").next().unwrap();
    assert!(last.contains("Running") && !last.contains("Waiting"), "{written:?}");
}
