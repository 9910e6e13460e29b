//! "Verified" means only what was checked: every API server, every resource, the storage version and the key.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use restow_lab::{Action, Cluster, ClusterSpec, Encryption, Observer, Part, Recorder, Seen, ServerSpec};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{CRDS, Lab, Ran, Restow, Widgets, create_all, name, send, try_send, wait};
use crate::traffic::{Traffic, status};

scenarios! {
    a_key_that_changed_before_a_resume_is_detected,
    a_server_that_is_unavailable_between_two_resources_is_waited_for,
    one_401_on_a_read_does_not_end_a_run,
    ; real:
    // It needs two API servers.
    a_key_rotation_is_verified_only_if_every_server_shows_the_new_key,
    // It needs two API servers.
    a_server_that_is_silent_at_the_end_of_a_pass_does_not_count_as_changed,
    // It needs two API servers.
    a_restart_of_a_server_starts_a_new_sampling_period,
    // A server that registers its storage versions can be migrated all the same.
    an_unserved_storage_version_is_reported,
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Encrypts Secrets and ConfigMaps; the first key writes.
fn encryption(keys: &[&str]) -> Encryption {
    Encryption::from_yaml(&Encryption::aescbc(keys).yaml().replace("[secrets]", "[secrets, configmaps]"))
}

/// The keys that the ConfigMaps of these tests are stored under.
async fn keys(cluster: &Cluster) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let each = |_: &str, bytes: &[u8]| {
        let head = String::from_utf8_lossy(&bytes[..40.min(bytes.len())]).into_owned();
        keys.insert(head.split(':').nth(4).unwrap_or_default().to_owned());
    };
    cluster.store().for_each("/registry/configmaps/default/w-", each).await.unwrap();
    keys
}

/// Forbids metrics as long as it is told to.
#[derive(Default)]
struct Forbidding(AtomicBool);

impl Observer for Forbidding {
    fn request(&self, request: &Seen) -> Action {
        if request.path != "/metrics" || !self.0.load(Ordering::SeqCst) {
            return Action::Forward;
        }
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "code": 403, "message": "metrics are secret"});
        Action::reply(403, &status.to_string())
    }
}

fn error(report: &Value) -> String {
    report["error"].as_str().unwrap_or_default().to_owned()
}

async fn a_key_rotation_is_verified_only_if_every_server_shows_the_new_key(lab: Lab) {
    const MANY: usize = 20;
    let old = encryption(&["key1"]);
    let new = encryption(&["key2", "key1"]);
    let cluster = lab.cluster(ClusterSpec::new().servers(2).encryption(old)).await;
    let client = cluster.client(0).unwrap();
    let map = |index| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(index)}});
    create_all(&client, CONFIG_MAPS, 0..MANY, map).await;
    assert_eq!(keys(&cluster).await, BTreeSet::from(["key1".to_owned()]));
    let forbidding = Arc::new(Forbidding::default());
    let recorder = Recorder::start(&cluster, 1, "admin", Arc::clone(&forbidding)).await.unwrap();
    let (first, second) = (cluster.url(0), recorder.url());
    let both = ["--api-server", &first, "--api-server", &second];
    let restow = Restow::new(&cluster);

    // One server writes under the new key; the other one would go on with the old one.
    cluster.set_encryption(0, &new).unwrap();
    cluster.restart(Part::ApiServer(0)).await.unwrap();
    let report = restow.migrate("configmaps", &both).await.expect(4).resource();
    assert!(error(&report).contains("different encryption configurations"), "{report:#}");
    assert_eq!(keys(&cluster).await, BTreeSet::from(["key1".to_owned()]));

    // Both have it, but one may not be asked: all is rewritten, and not proven.
    cluster.set_encryption(1, &new).unwrap();
    cluster.restart(Part::ApiServer(1)).await.unwrap();
    forbidding.0.store(true, Ordering::SeqCst);
    let declared = [&both[..], &["--encrypted", "Secret, cm"]].concat();
    let report = restow.migrate("configmaps", &declared).await.expect(4).resource();
    assert_eq!((&report["verified"], &report["encryption"]["checked"]), (&json!(false), &json!(false)));
    assert!(error(&report).contains("metrics are secret"), "{report:#}");
    assert_eq!(report["encryption"]["unchecked"][0]["server"], json!(second), "{report:#}");
    restow.migrate("secrets", &both).await.expect(4);
    // One server reports a configuration, which may cover anything that nobody has spoken of.
    let report = restow.migrate("configmaps", &both).await.expect(4).resource();
    assert_eq!(report["verified"], json!(false), "{report:#}");
    // Who says that it is not encrypted is taken at their word.
    let others = [&both[..], &["--encrypted", "secrets"]].concat();
    let report = restow.migrate("configmaps", &others).await.expect(0).resource();
    assert_eq!(report["verified"], json!(true), "{report:#}");

    // Both can be asked, and agree.
    forbidding.0.store(false, Ordering::SeqCst);
    let report = restow.migrate("configmaps", &declared).await.expect(0).resource();
    assert_eq!((&report["verified"], &report["encryption"]["checked"]), (&json!(true), &json!(true)));
    assert_eq!(report["encryption"]["configHash"], json!(new.hash()), "{report:#}");
    assert!(report["notChecked"].is_null(), "{report:#}");
    assert_eq!(keys(&cluster).await, BTreeSet::from(["key2".to_owned()]));
    let said = restow.run(&[&["migrate", "configmaps"], &both[..]].concat()).await.expect(0);
    assert!(said.stdout.contains(&format!("under encryption configuration {}", new.hash())), "{said:#?}");
}

async fn a_key_that_changed_before_a_resume_is_detected(lab: Lab) {
    const MANY: usize = 40;
    let cluster = lab.cluster(ClusterSpec::new().encryption(encryption(&["key1"]))).await;
    let client = cluster.client(0).unwrap();
    let map = |index| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(index)}});
    create_all(&client, CONFIG_MAPS, 0..MANY, map).await;
    let (recorder, traffic) = Traffic::record(&cluster, |_, _| Action::Forward).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let kill_at = async |flags: &[&str], patches: usize| {
        let flags = [&["migrate", "configmaps", "--page-size", "10"], flags].concat();
        let until = traffic.patches() + patches;
        let mut child = restow.command(&flags).spawn().unwrap();
        traffic.reach(until, &mut child).await;
        child.kill().await.unwrap();
    };
    let reload = async |encryption: &Encryption| {
        cluster.set_encryption(0, encryption).unwrap();
        cluster.wait_for_encryption(0, encryption).await.unwrap();
    };
    let declared = ["--resume", "--encrypted", "configmaps"];

    // Nobody looked at the key in the half of the verifying pass that was done before.
    kill_at(&["--encrypted", "none"], MANY + 25).await;
    let second = encryption(&["key2", "key1"]);
    reload(&second).await;
    let report = restow.migrate("configmaps", &declared).await.expect(0).resource();
    assert_eq!(
        (&report["verified"], &report["encryption"]["configHash"]),
        (&json!(true), &json!(second.hash()))
    );
    assert_eq!(keys(&cluster).await, BTreeSet::from(["key2".to_owned()]));

    // It was looked at, and is another one now.
    kill_at(&["--encrypted", "configmaps"], 15).await;
    let third = encryption(&["key3", "key2", "key1"]);
    reload(&third).await;
    let report = restow.migrate("configmaps", &declared).await.expect(0).resource();
    assert_eq!(
        (&report["verified"], &report["encryption"]["configHash"]),
        (&json!(true), &json!(third.hash()))
    );
    assert_eq!(keys(&cluster).await, BTreeSet::from(["key3".to_owned()]));
}

/// Cuts the third look at a server's metrics off, and the fourth.
#[derive(Default)]
struct SilentAtTheEnd(AtomicUsize);

impl Observer for SilentAtTheEnd {
    fn request(&self, request: &Seen) -> Action {
        if request.path != "/metrics" {
            return Action::Forward;
        }
        match self.0.fetch_add(1, Ordering::SeqCst) {
            2 | 3 => Action::DropBefore,
            _ => Action::Forward,
        }
    }
}

async fn a_server_that_is_silent_at_the_end_of_a_pass_does_not_count_as_changed(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new().servers(2).storage_version_api()).await;
    let silent = Arc::new(SilentAtTheEnd::default());
    let recorder = Recorder::start(&cluster, 1, "admin", Arc::clone(&silent)).await.unwrap();
    let (first, second) = (cluster.url(0), recorder.url());
    let both = ["--api-server", &first, "--api-server", &second];
    let restow = Restow::new(&cluster);
    let report = restow.migrate("secrets", &both).await.expect(0).resource();
    assert_eq!(report["verified"], true);
    assert!(silent.0.load(Ordering::SeqCst) >= 5, "the silence was not met");

    // A server that is named is asked, though a StorageVersion object speaks for all.
    let dead = ["--api-server", &first, "--api-server", "https://127.0.0.1:1"];
    let report = restow.migrate("namespaces", &dead).await.expect(4).resource();
    assert!(error(&report).contains("https://127.0.0.1:1"), "{report:#}");

    // Who may not list the Leases does not know that there are no other servers.
    let everything_but_leases = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "no-leases"},
        "rules": [
            {"apiGroups": ["", "apiextensions.k8s.io", "apiregistration.k8s.io", "internal.apiserver.k8s.io"],
             "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["get"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "no-leases"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "no-leases"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    let client = cluster.client(0).unwrap();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    send(&client, "POST", &format!("{rbac}/clusterroles"), Some(&everything_but_leases)).await;
    send(&client, "POST", &format!("{rbac}/clusterrolebindings"), Some(&binding)).await;
    let alice = Restow::with_kubeconfig(cluster.kubeconfig(0, "alice"));
    wait("the role to be known on both servers", || async {
        let mut known = true;
        for server in 0..2 {
            let alice = cluster.client_as(server, "alice").unwrap();
            known &= try_send(&alice, "GET", "/api/v1/namespaces", None).await.is_ok();
        }
        known
    })
    .await;
    let report = alice.migrate("namespaces", &[]).await.expect(4).resource();
    assert!(error(&report).contains("cannot determine which API servers exist"), "{report:#}");
    let (first, second) = (cluster.url(0), cluster.url(1));
    let both = ["--api-server", &first, "--api-server", &second];
    let report = alice.migrate("namespaces", &both).await.expect(0).resource();
    assert_eq!((&report["agreement"], &report["verified"]), (&json!("named"), &json!(true)));
    assert!(
        report["notChecked"][0].as_str().unwrap().contains("identity Leases may not be read"),
        "{report:#}"
    );
}

/// Cuts off the first looks at one definition, as a server does that restarts.
struct Away(String, AtomicUsize);

impl Observer for Away {
    fn request(&self, request: &Seen) -> Action {
        let met = request.path == self.0 && self.1.fetch_add(1, Ordering::SeqCst) < 4;
        if met { Action::DropBefore } else { Action::Forward }
    }
}

async fn a_server_that_is_unavailable_between_two_resources_is_waited_for(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "absences" };
    widgets.define(&client).await;
    widgets.create(&client, 5).await;
    widgets.store_as(&client, "v2").await;
    let away = Arc::new(Away(format!("{CRDS}/{}", widgets.name()), AtomicUsize::new(0)));
    let recorder = Recorder::start(cluster, 0, "admin", away).await.unwrap();
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let ran = restow.migrate("namespaces", &[&widgets.name()]).await.expect(0);
    let report = ran.report();
    assert_eq!(report["resources"].as_array().unwrap().len(), 2, "{report:#}");
    assert_eq!(report["resources"][1]["verified"], true, "{report:#}");
    assert_eq!(widgets.stored_as(cluster).await[&format!("{}/v2", widgets.group())], 5);
}

/// Passes each connection on to the next of several servers.
async fn balance(servers: Vec<SocketAddr>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut next = servers.into_iter().cycle();
        while let (Ok((mut incoming, _)), Some(server)) = (listener.accept().await, next.next()) {
            tokio::spawn(async move {
                let Ok(mut outgoing) = TcpStream::connect(server).await else { return };
                tokio::io::copy_bidirectional(&mut incoming, &mut outgoing).await.ok();
            });
        }
    });
    url
}

async fn a_restart_of_a_server_starts_a_new_sampling_period(lab: Lab) {
    const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
    let spec = ClusterSpec::new().servers(2).server(1, ServerSpec::new().emulated_version("1.34"));
    let cluster = lab.cluster(spec).await;
    let client = cluster.client(0).unwrap();
    let class = |index| json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name(index)}, "spec": {}});
    create_all(&client, CLASSES, 0..5, class).await;
    let before = send(&client, "GET", CLASSES, None).await["items"].clone();
    let url = balance(vec![cluster.addr(0), cluster.addr(1)]).await;
    let restow = Restow::with_kubeconfig(cluster.kubeconfig_at(&url, "admin").unwrap());
    let sampled = ["--sample-servers", "4s"];

    let ran = restow.migrate("namespaces", &[&["deviceclasses"], &sampled[..]].concat()).await.expect(4);
    let report = ran.report();
    assert_eq!(report["resources"][0]["agreement"], "sampled", "{report:#}");
    assert!(error(&report["resources"][1]).contains("the API servers disagree"), "{report:#}");
    let after = send(&client, "GET", CLASSES, None).await["items"].clone();
    assert_eq!(before, after, "something was written to servers that disagree");

    // They agree, and one restarts under the run: a new period is due, and then the run goes on.
    let agrees = |flags: &mut restow_lab::Flags| {
        flags.remove("emulated-version");
    };
    cluster.restart_with(Part::ApiServer(1), agrees).await.unwrap();
    create_all(&client, CLASSES, 5..80, class).await;
    let paced = ["migrate", "deviceclasses", "-o", "json", "--qps", "10", "--page-size", "10"];
    let running = restow.command(&[&paced, &["--sample-servers", "2s"][..]].concat()).spawn().unwrap();
    wait("the first page to be kept", || async { kept(restow.state.path()).contains("\"listed\":10") }).await;
    cluster.restart(Part::ApiServer(1)).await.unwrap();
    let report = Ran::from(running.wait_with_output().await.unwrap()).expect(0).resource();
    assert_eq!((&report["agreement"], &report["verified"]), (&json!("sampled"), &json!(true)), "{report:#}");
    assert!(report["notChecked"][0].as_str().unwrap().contains("sampled"), "{report:#}");
}

/// All that a state directory holds, without spaces.
fn kept(dir: &std::path::Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            text.push_str(&kept(&entry.path()));
        } else {
            text.push_str(&std::fs::read_to_string(entry.path()).unwrap_or_default().replace(' ', ""));
        }
    }
    text
}

async fn an_unserved_storage_version_is_reported(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "unserved" };
    widgets.define(&client).await;
    widgets.create(&client, 5).await;
    widgets.store_as(&client, "v2").await;
    widgets.set_versions(&client, &[("v1", true, false), ("v2", false, true)]).await;
    wait("v2 to be served no more", || async {
        try_send(&client, "GET", &widgets.path("v2", ""), None).await.is_err()
    })
    .await;
    let restow = Restow::new(cluster);
    let planned = restow.run(&["plan", &widgets.name(), "-o", "json"]).await.expect(0).report();
    assert_eq!(
        (&planned[0]["migratable"], &planned[0]["needed"]),
        (&json!(false), &json!("yes")),
        "{planned:#}"
    );
    let advice = "set served: true for v2";
    assert!(planned[0]["whyNot"].as_str().unwrap().contains(advice), "{planned:#}");
    let ran = restow.migrate(&widgets.name(), &["--assume-single-server"]).await.expect(2);
    assert!(ran.stderr.contains(advice), "{ran:#?}");
    widgets.store_as(&client, "v2").await;
    let report = restow.migrate(&widgets.name(), &[]).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(5), &json!(true)), "{report:#}");
    assert_eq!(widgets.stored_as(cluster).await[&format!("{}/v2", widgets.group())], 5);
}

async fn one_401_on_a_read_does_not_end_a_run(lab: Lab) {
    const MANY: usize = 30;
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "renewals" };
    widgets.define(&client).await;
    widgets.create(&client, MANY).await;
    widgets.store_as(&client, "v2").await;
    let refused = Arc::new(AtomicUsize::new(0));
    let rule = {
        let refused = Arc::clone(&refused);
        move |seen: &Seen, before: usize| {
            if seen.method != http::Method::GET || before != 1 {
                return Action::Forward;
            }
            refused.fetch_add(1, Ordering::SeqCst);
            status(401, "Unauthorized", "Unauthorized")
        }
    };
    let (recorder, _) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let flags = ["--page-size", "10", "--prune-stored-versions"];
    let report = restow.migrate(&widgets.name(), &flags).await.expect(0).resource();
    assert_eq!((&report["verified"], &report["rewritten"]), (&json!(true), &json!(MANY)), "{report:#}");
    assert!(
        refused.load(Ordering::SeqCst) >= 3,
        "Leases, the definition and the discovery are read again and again"
    );
    let stored = widgets.stored_as(cluster).await;
    assert_eq!(stored.get(&format!("{}/v2", widgets.group())), Some(&MANY), "{stored:?}");
}
