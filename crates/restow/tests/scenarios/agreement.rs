//! Nothing is written unless every API server agrees on the storage version.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use restow_lab::{Action, ClusterSpec, Observer, Part, Recorder, Seen, ServerSpec};
use serde_json::json;
use tokio::sync::Notify;

use crate::support::{Lab, Ran, Restow, Widgets, cluster, create_all, lab, name, send, wait};
use crate::traffic::Traffic;

scenarios! {
    a_storage_version_change_ends_the_run,
    a_double_change_during_the_verifying_pass_is_detected,
    a_resumed_run_waits_for_a_changed_crd_to_settle,
    a_watched_change_ends_the_run_in_the_middle_of_a_page,
    ; real:
    // It needs two API servers.
    a_disagreement_stops_the_run_within_a_page,
    // It needs a server that registers no storage versions.
    servers_behind_one_address_are_sampled_on_request,
}

const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";

/// Counts writes, and lets them through only up to a number until it is told to go on.
#[derive(Default)]
struct Gate {
    writes: AtomicUsize,
    hold_after: usize,
    reached: Notify,
    go_on: Arc<Notify>,
    times: Mutex<Vec<Instant>>,
}

impl Observer for Gate {
    fn request(&self, request: &Seen) -> Action {
        if request.query.contains("watch=true") {
            // Changes are seen between pages, as where nothing may be watched.
            return Action::reply(403, "{}");
        }
        if request.method != "PATCH" {
            return Action::Forward;
        }
        self.times.lock().unwrap().push(Instant::now());
        let before = self.writes.fetch_add(1, Ordering::SeqCst);
        if self.hold_after == 0 || before < self.hold_after {
            return Action::Forward;
        }
        self.reached.notify_one();
        let go_on = Arc::clone(&self.go_on);
        Action::Wait(Box::pin(async move {
            go_on.notified().await;
            go_on.notify_one();
        }))
    }
}

async fn device_classes(client: &kube::Client, count: usize) {
    let class = |index| json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name(index)}, "spec": {}});
    create_all(client, CLASSES, 0..count, class).await;
}

/// What a run says that found no agreement.
fn refusal(ran: &Ran) -> String {
    ran.resource()["error"].as_str().unwrap_or_default().to_owned()
}

// Only on a real kube-apiserver: it needs two servers that emulate different releases.
#[tokio::test]
async fn nothing_is_written_while_two_servers_disagree() {
    let assets = lab!();
    let spec = ClusterSpec::new().servers(2).server(1, ServerSpec::new().emulated_version("1.34"));
    // With the StorageVersion API, whose objects tell; and on a stock cluster, whose servers are asked.
    for with_api in [true, false] {
        let spec = if with_api { spec.clone().storage_version_api() } else { spec.clone() };
        let cluster = cluster(&assets, spec).await;
        device_classes(&cluster.client(0).unwrap(), 20).await;
        let gate = Arc::new(Gate::default());
        let recorder = Recorder::start(&cluster, 0, "admin", Arc::clone(&gate)).await.unwrap();
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let (first, second) = (cluster.url(0), cluster.url(1));
        let named = ["--api-server", &first, "--api-server", &second];

        if with_api {
            let ran = restow.migrate("deviceclasses", &[]).await.expect(4);
            assert!(refusal(&ran).contains("the API servers disagree"), "{ran:#?}");
            assert!(refusal(&ran).contains("stores resource.k8s.io/v1beta2"), "{ran:#?}");
        } else {
            // Their advertised addresses are out of reach here, so neither can be asked unless it is named.
            let ran = restow.migrate("deviceclasses", &[]).await.expect(4);
            assert!(refusal(&ran).contains("could not query every live API server"), "{ran:#?}");
            assert!(refusal(&ran).contains("--api-server"), "{ran:#?}");
            let ran = restow.migrate("deviceclasses", &named[..2]).await.expect(4);
            assert!(refusal(&ran).contains("2 API servers are alive and 1 named"), "{ran:#?}");
            let direct = Restow::new(&cluster);
            let ran = direct.migrate("deviceclasses", &named).await.expect(4);
            assert!(refusal(&ran).contains("the API servers disagree"), "{ran:#?}");
            // Twice the same is still one.
            let ran =
                direct.migrate("deviceclasses", &[named[0], named[1], named[0], named[1]]).await.expect(4);
            assert!(refusal(&ran).contains("2 API servers are alive and 1 named"), "{ran:#?}");
            // A server that is down is not one that agrees.
            let ran = direct
                .migrate("deviceclasses", &[named[0], named[1], named[2], "https://127.0.0.1:1"])
                .await
                .expect(4);
            assert!(refusal(&ran).contains("https://127.0.0.1:1"), "{ran:#?}");
        }
        // What they agree on can be migrated meanwhile.
        let more: &[&str] = if with_api { &[] } else { &named };
        let ran = Restow::new(&cluster).migrate("namespaces", more).await.expect(0);
        assert_eq!(ran.resource()["agreement"], if with_api { "storageversion" } else { "direct" });
        assert_eq!(gate.writes.load(Ordering::SeqCst), 0, "something was written without agreement");
    }
}

async fn a_disagreement_stops_the_run_within_a_page(lab: Lab) {
    const PAGE: usize = 20;
    let cluster = lab.cluster(ClusterSpec::new().servers(2).storage_version_api()).await;
    device_classes(&cluster.client(0).unwrap(), 200).await;
    let gate = Arc::new(Gate { hold_after: 2 * PAGE + 5, ..Gate::default() });
    let recorder = Recorder::start(&cluster, 0, "admin", Arc::clone(&gate)).await.unwrap();
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let page = PAGE.to_string();
    let args = ["migrate", "deviceclasses", "-o", "json", "--page-size", &page];
    let running = restow.command(&args).spawn().unwrap();
    gate.reached.notified().await;
    // A rollback of the second server, in the middle of the third page.
    let roll_back = |flags: &mut restow_lab::Flags| {
        flags.set("emulated-version", "1.34");
    };
    cluster.restart_with(Part::ApiServer(1), roll_back).await.unwrap();
    let client = cluster.client(0).unwrap();
    let object = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/resource.k8s.io.deviceclasses";
    wait("the rolled back server to register", || async {
        send(&client, "GET", object, None).await["status"]["commonEncodingVersion"].is_null()
    })
    .await;
    gate.go_on.notify_one();
    let ran = Ran::from(running.wait_with_output().await.unwrap()).expect(4);
    assert!(refusal(&ran).contains("the API servers disagree"), "{ran:#?}");
    assert_eq!(ran.resource()["verified"], false);
    let sent = gate.writes.load(Ordering::SeqCst);
    assert!(sent <= 3 * PAGE, "{sent} writes: it went on for more than a page");

    // Once they agree again it goes on from where it stopped.
    cluster
        .restart_with(Part::ApiServer(1), |flags| {
            flags.remove("emulated-version");
        })
        .await
        .unwrap();
    wait("both servers to agree", || async {
        send(&client, "GET", object, None).await["status"]["commonEncodingVersion"] == "resource.k8s.io/v1"
    })
    .await;
    let report =
        restow.migrate("deviceclasses", &["--resume", "--page-size", &page]).await.expect(0).resource();
    assert_eq!(report["verified"], true);
    assert_eq!(report["listed"], 200);
    // Whether anybody encrypts is not known while the other server's metrics are out of reach.
    let ran = Restow::new(&cluster).migrate("secrets", &[]).await.expect(4);
    assert_eq!(
        (&ran.resource()["agreement"], &ran.resource()["verified"]),
        (&json!("storageversion"), &json!(false))
    );
    assert!(refusal(&ran).contains("but the encryption key is not proven"), "{ran:#?}");
    let (first, second) = (cluster.url(0), cluster.url(1));
    let both = ["--api-server", &first, "--api-server", &second];
    let report = Restow::new(&cluster).migrate("secrets", &both).await.expect(0).resource();
    assert_eq!((&report["agreement"], &report["verified"]), (&json!("storageversion"), &json!(true)));
    let open = report["notChecked"][0].as_str().unwrap();
    assert!(open.contains("no API server reports an encryption configuration"), "{report:#}");
}

async fn a_storage_version_change_ends_the_run(lab: Lab) {
    const PAGE: usize = 20;
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "moves" };
    widgets.define(&client).await;
    widgets.create(&client, 200).await;
    widgets.store_as(&client, "v2").await;
    let gate = Arc::new(Gate { hold_after: PAGE + 5, ..Gate::default() });
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&gate)).await.unwrap();
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let (name, page) = (widgets.name(), PAGE.to_string());
    let running = restow.command(&["migrate", &name, "-o", "json", "--page-size", &page]).spawn().unwrap();
    gate.reached.notified().await;
    widgets.store_as(&client, "v1").await;
    gate.go_on.notify_one();
    let ran = Ran::from(running.wait_with_output().await.unwrap()).expect(4);
    assert!(refusal(&ran).contains("the storage version changed during the run"), "{ran:#?}");
    let sent = gate.writes.load(Ordering::SeqCst);
    assert!(sent <= 2 * PAGE, "{sent} writes: it went on for more than a page");
}

/// Forth and back between two looks: the hash is the same again, but what was rewritten meanwhile is not proven.
async fn a_double_change_during_the_verifying_pass_is_detected(lab: Lab) {
    const MANY: usize = 60;
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "doubles" };
    widgets.define(&client).await;
    widgets.create(&client, MANY).await;
    widgets.store_as(&client, "v2").await;
    // The first pass is through, the second is held in its middle.
    let gate = Arc::new(Gate { hold_after: MANY + 5, ..Gate::default() });
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&gate)).await.unwrap();
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let running =
        restow.command(&["migrate", &widgets.name(), "-o", "json", "--page-size", "100"]).spawn().unwrap();
    gate.reached.notified().await;
    widgets.store_as(&client, "v1").await;
    // Written in the old version behind the pass.
    let touch = json!({"spec": {"touched": true}});
    crate::support::patch(&client, &widgets.path("v1", &name(0)), &touch).await;
    widgets.store_as(&client, "v2").await;
    let changed = Instant::now();
    gate.go_on.notify_one();
    let report = Ran::from(running.wait_with_output().await.unwrap()).expect(0).resource();
    assert_eq!(report["verified"], true);
    // Handlers may follow later than discovery, so the pass that proves it begins only when they had time to.
    let next_pass = gate.times.lock().unwrap()[2 * MANY];
    let waited = next_pass.duration_since(changed);
    assert!(
        waited >= restow_core::agreement::version::CRD_SETTLE_TIME,
        "the next pass began after {waited:?}"
    );
    assert!(report["verifyPasses"].as_u64().unwrap() >= 2, "{report:#}");
    assert_eq!(widgets.stored_as(cluster).await[&format!("{}/v2", widgets.group())], MANY);
}

/// Forth and back before a resume: the hash is the one the run was for, and the handlers may still follow.
async fn a_resumed_run_waits_for_a_changed_crd_to_settle(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "resumptions" };
    widgets.define(&client).await;
    widgets.create(&client, 100).await;
    widgets.store_as(&client, "v2").await;
    let gate = Arc::new(Gate { hold_after: 25, ..Gate::default() });
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&gate)).await.unwrap();
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let name = widgets.name();
    let mut running = restow.command(&["migrate", &name, "-o", "json", "--page-size", "10"]).spawn().unwrap();
    gate.reached.notified().await;
    running.kill().await.unwrap();
    gate.go_on.notify_one();
    widgets.store_as(&client, "v1").await;
    widgets.store_as(&client, "v2").await;
    let (changed, before) = (Instant::now(), gate.times.lock().unwrap().len());
    let report = restow.migrate(&name, &["--resume", "--page-size", "10"]).await.expect(0).resource();
    assert_eq!((&report["listed"], &report["verified"]), (&json!(100), &json!(true)), "{report:#}");
    let waited = gate.times.lock().unwrap()[before].duration_since(changed);
    assert!(
        waited >= restow_core::agreement::version::CRD_SETTLE_TIME,
        "the first write came after {waited:?}"
    );
    assert_eq!(widgets.stored_as(cluster).await[&format!("{}/v2", widgets.group())], 100);
}

/// Servers behind one address: fresh connections show one hash for a while, and nobody comes or goes.
async fn servers_behind_one_address_are_sampled_on_request(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "samples" };
    widgets.define(&client).await;
    widgets.create(&client, 10).await;
    widgets.store_as(&client, "v2").await;
    let proxy = restow_lab::Proxy::start(cluster.addr(0)).await.unwrap();
    let restow = Restow::with_kubeconfig(cluster.kubeconfig_at(&proxy.url(), "admin").unwrap());
    let report = restow.migrate(&widgets.name(), &["--sample-servers", "3s"]).await.expect(0).resource();
    assert_eq!((&report["agreement"], &report["verified"]), (&json!("sampled"), &json!(true)));
    let fresh = proxy.connections();
    assert!(fresh >= 6, "only {fresh} connections: one that is kept always shows one server");
    let assumed = restow.migrate(&widgets.name(), &["--assume-single-server"]).await.expect(0).resource();
    assert_eq!(assumed["agreement"], "assumed");
}

async fn a_watched_change_ends_the_run_in_the_middle_of_a_page(lab: Lab) {
    const MANY: usize = 200;
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    for (plural, may_watch) in [("disturbed", true), ("unwatched", false)] {
        let widgets = Widgets { plural };
        widgets.define(&client).await;
        widgets.create(&client, MANY).await;
        widgets.store_as(&client, "v2").await;
        let rule = move |request: &Seen, _: usize| {
            let forbidden = !may_watch && request.query.contains("watch=true");
            if forbidden { Action::reply(403, "{}") } else { Action::Forward }
        };
        let (recorder, traffic) = Traffic::record(cluster, rule).await;
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let name = widgets.name();
        // One page, which takes ten seconds.
        let args = ["migrate", &name, "-o", "json", "--page-size", "1000", "--qps", "20"];
        let running = restow.command(&args).spawn().unwrap();
        let second = format!("{}/v2", widgets.group());
        let rewritten = async || widgets.stored_as(cluster).await.get(&second).copied().unwrap_or_default();
        wait("some to be rewritten", || async { rewritten().await >= 10 }).await;
        widgets.store_as(&client, "v1").await;
        let ran = Ran::from(running.wait_with_output().await.unwrap()).expect(4);
        let resource = ran.resource();
        let why = resource["error"].as_str().unwrap();
        assert!(why.contains("storage version changed during the run"), "{why}");
        let sent = traffic.patches();
        assert_eq!(sent < MANY, may_watch, "{sent} of {MANY} objects were written");
        // Those that were written before it are reported.
        let listed = usize::try_from(resource["listed"].as_u64().unwrap()).unwrap();
        assert!((10..=sent).contains(&listed), "{listed} of {sent}");
    }
}
