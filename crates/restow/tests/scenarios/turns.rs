//! Migration objects that users suspend, delete, queue and retry.

use std::time::Duration;

use restow_lab::{Action, Cluster, ClusterSpec, Part};
use serde_json::{Value, json};

use crate::controller::{Controller, MIGRATIONS, ask_for, is, migration, prepared, wait_for};
use crate::rejected::{allow, deny};
use crate::support::{Lab, Restow, Widgets, cluster, lab, name, patch, send, wait};
use crate::traffic::Traffic;

scenarios! {
    migrations_can_be_suspended_resumed_deleted_and_queued,
    a_migration_that_is_not_possible_fails_with_a_reason,
    a_migration_survives_an_outage_of_the_api_server,
    a_slow_status_write_does_not_cause_a_deadlock,
    slow_status_writes_do_not_delay_running_migrations,
}

const PAGE: u64 = 20;
const MANY: usize = 200;

/// A custom resource whose storage version has just changed.
async fn flipped(client: &kube::Client, plural: &'static str) -> Widgets {
    let widgets = Widgets { plural };
    widgets.define(client).await;
    widgets.create(client, MANY).await;
    widgets.store_as(client, "v2").await;
    widgets
}

/// Just the migrator, slow enough to be interfered with.
const SLOW: [&str; 6] = ["--controllers", "migrator", "--page-size", "20", "--qps", "100"];

async fn written(client: &kube::Client, name: &str) -> u64 {
    migration(client, name).await["status"]["progress"]["rewritten"].as_u64().unwrap_or_default()
}

fn reason(migration: &Value) -> String {
    migration["status"]["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned()
}

async fn migrations_can_be_suspended_resumed_deleted_and_queued(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, _) = prepared(&cluster).await;
    let (recorder, traffic) = Traffic::record(&cluster, |_, _| Action::Forward).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let sent = |widgets: &Widgets| {
        let path = format!("/apis/{}/", widgets.group());
        traffic.patches_of("").iter().filter(|request| request.path.starts_with(&path)).count() as u64
    };
    let (one, two) = (flipped(&client, "firsts").await, flipped(&client, "seconds").await);
    let _controller = Controller::start(&restow, &SLOW).await;

    // Another one waits for its turn, and says so.
    ask_for(&client, "one", &one.name()).await;
    ask_for(&client, "two", &two.name()).await;
    wait("the second to be queued", || async {
        let queued = migration(&client, "two").await;
        let message = &queued["status"]["conditions"][0]["message"];
        reason(&queued) == "Queued" && message == "waits for its turn: 1 migration runs at a time"
    })
    .await;
    wait("some pages", || async { written(&client, "one").await >= 2 * PAGE }).await;

    // Suspended, it stops within a page and keeps what it has; the other one goes on meanwhile.
    patch(&client, &format!("{MIGRATIONS}/one"), &json!({"spec": {"suspend": true}})).await;
    let (at, kept) = (sent(&one), written(&client, "one").await);
    wait("it to stand still", || async { migration(&client, "one").await["status"]["phase"] == "Suspended" })
        .await;
    assert!(sent(&one) <= at + PAGE, "{} writes after it was suspended", sent(&one) - at);
    let still = written(&client, "one").await;
    assert!(still >= kept && still < MANY as u64, "{still}");
    let second = wait_for(&client, "two", "Succeeded").await;
    assert_eq!(second["status"]["progress"]["rewritten"], MANY);
    assert_eq!(written(&client, "one").await, still, "it went on while it was suspended");

    // Resumed, it goes on from there.
    let before = sent(&one);
    patch(&client, &format!("{MIGRATIONS}/one"), &json!({"spec": {"suspend": false}})).await;
    let done = wait_for(&client, "one", "Succeeded").await;
    assert_eq!(
        (&done["status"]["progress"]["rewritten"], &done["status"]["progress"]["listed"]),
        (&json!(MANY), &json!(MANY))
    );
    let needed = 2 * MANY as u64 - still;
    assert!(sent(&one) - before <= needed + PAGE, "{} writes, {needed} were left", sent(&one) - before);

    // Deleted, it stops within a page.
    let three = flipped(&client, "thirds").await;
    ask_for(&client, "three", &three.name()).await;
    wait("some pages", || async { written(&client, "three").await >= PAGE }).await;
    send(&client, "DELETE", &format!("{MIGRATIONS}/three"), None).await;
    let at = sent(&three);
    // The next one has its turn only when that one has stopped.
    ask_for(&client, "after", "configmaps").await;
    wait_for(&client, "after", "Succeeded").await;
    assert!(sent(&three) <= at + PAGE, "{} writes after it was deleted", sent(&three) - at);
    let stopped = sent(&three);
    ask_for(&client, "again", "configmaps").await;
    wait_for(&client, "again", "Succeeded").await;
    assert_eq!(sent(&three), stopped, "a deleted migration runs on");
}

/// Whoever asks for events gets them, and a resource that nobody serves is no riddle.
async fn a_migration_that_is_not_possible_fails_with_a_reason(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let _controller = Controller::start(&restow, &["--controllers", "migrator"]).await;
    for (name, resource) in [("events", "events"), ("shared", "events.events.k8s.io")] {
        ask_for(&client, name, resource).await;
        let done = wait_for(&client, name, "Succeeded").await;
        assert_eq!(done["status"]["progress"]["verified"], true);
    }
    for (name, resource, reason, words) in [
        ("nowhere", "gadgets.example.com", "NotServed", "no API server serves gadgets.example.com"),
        ("virtual", "tokenreviews.authentication.k8s.io", "NotMigratable", "does not support list"),
    ] {
        ask_for(&client, name, resource).await;
        let failed = wait_for(&client, name, "Failed").await;
        assert_eq!(self::reason(&failed), reason);
        assert!(failed["status"]["conditions"][0]["message"].as_str().unwrap().contains(words), "{failed:#}");
    }
    // One that is for another version than the one in use never starts.
    let stale = json!({
        "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration", "metadata": {"name": "stale"},
        "spec": {"resource": {"version": "v1", "resource": "secrets"}, "storageVersionHash": "AAAAAAAAAAA="},
    });
    send(&client, "POST", MIGRATIONS, Some(&stale)).await;
    assert_eq!(reason(&wait_for(&client, "stale", "Failed").await), "StorageVersionChanged");
}

/// A refused connection is never a final failure.
async fn a_migration_survives_an_outage_of_the_api_server(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = flipped(&client, "outages").await;
    let _controller = Controller::start(&restow, &SLOW).await;
    ask_for(&client, "through", &widgets.name()).await;
    for _ in 0..2 {
        let before = written(&client, "through").await;
        wait("another page", || async { written(&client, "through").await > before }).await;
        cluster.kill(Part::ApiServer(0)).unwrap();
        cluster.restart(Part::ApiServer(0)).await.unwrap();
    }
    let done = wait_for(&client, "through", "Succeeded").await;
    assert_eq!(done["status"]["progress"]["verified"], true);
    assert!(!is(&done, "Failed"));
    assert_eq!(widgets.stored_as(&cluster).await[&format!("{}/v2", widgets.group())], MANY);
}

// Only on a real kube-apiserver: it needs an admission policy, and runs kubectl.
#[tokio::test]
async fn quarantined_objects_are_named_and_retried() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = flipped(&client, "lockeds").await;
    for index in [3, 77, 150] {
        let label = json!({"metadata": {"labels": {"locked": "true"}}});
        patch(&client, &widgets.path("v2", &name(index)), &label).await;
    }
    deny(&client, &widgets, 3).await;
    let _controller =
        Controller::start(&restow, &["--controllers", "migrator,pruner", "--pace", "fast"]).await;
    let made = ask_for(&client, "careful", &widgets.name()).await;
    let failed = wait_for(&client, "careful", "Failed").await;
    assert_eq!(reason(&failed), "Quarantined");
    let left = failed["status"]["quarantined"].as_array().unwrap();
    let mut names: Vec<&str> = left.iter().map(|object| object["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, [name(3), name(77), name(150)]);
    assert!(left[0]["message"].as_str().unwrap().contains("locked by the change board"));
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]), "pruned with objects left");
    let described = describe(&cluster, &assets, "careful").await;
    for words in ["locked by the change board", "Quarantined", "restow retry careful", "Events:"] {
        assert!(described.contains(words), "{words:?} is not in\n{described}");
    }

    // Asked for once more while nothing has changed, it fails once more; then it is mended.
    let retry = json!({"metadata": {"annotations": {"restow.dev/retry": "now"}}});
    let asked = async || {
        patch(&client, &format!("{MIGRATIONS}/careful"), &retry).await;
        wait("the request to be taken up", || async {
            migration(&client, "careful").await["metadata"]["annotations"]["restow.dev/retry"].is_null()
        })
        .await;
    };
    asked().await;
    let failed = wait_for(&client, "careful", "Failed").await;
    assert_eq!(failed["status"]["quarantined"].as_array().unwrap().len(), 3);
    allow(&client, &widgets, 3).await;
    asked().await;
    let done = wait_for(&client, "careful", "Succeeded").await;
    assert_eq!(done["metadata"]["uid"], made["metadata"]["uid"]);
    assert!(!is(&done, "Failed") && done["status"]["quarantined"].is_null(), "{done:#}");
    assert_eq!(widgets.stored_as(&cluster).await[&format!("{}/v2", widgets.group())], MANY);
    wait("storedVersions to be pruned", || async { widgets.stored_versions(&client).await == json!(["v2"]) })
        .await;
}

async fn describe(cluster: &Cluster, assets: &restow_lab::Assets, name: &str) -> String {
    let mut command = tokio::process::Command::new(assets.kubectl.clone().expect("kubectl"));
    command
        .args(["describe", "storageversionmigration", name])
        .env("KUBECONFIG", cluster.kubeconfig(0, "admin"));
    String::from_utf8(command.output().await.unwrap().stdout).unwrap()
}

/// What tells that a migration waits must not get in the way of what keeps its progress.
async fn a_slow_status_write_does_not_cause_a_deadlock(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, _) = prepared(&cluster).await;
    let widgets = flipped(&client, "slows").await;
    // For some seconds from its first write on, however late that comes.
    let began = std::sync::OnceLock::new();
    let troubled = widgets.path("v2", &name(5));
    let rule = move |request: &restow_lab::Seen, _| {
        let since = || began.get_or_init(std::time::Instant::now).elapsed();
        if request.path == troubled && since() < Duration::from_secs(12) {
            let busy = http::Response::builder().status(503).body(r#"{"kind":"Status","code":503}"#.into());
            return Action::Reply(busy.unwrap());
        }
        if request.path.ends_with("/slow/status") {
            return Action::Wait(Box::pin(tokio::time::sleep(Duration::from_secs(4))));
        }
        Action::Forward
    };
    let (recorder, _) = Traffic::record(&cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let _controller =
        Controller::start(&restow, &["--controllers", "migrator", "--pace", "fast", "--page-size", "100"])
            .await;
    ask_for(&client, "slow", &widgets.name()).await;
    wait("the wait to be told", || async { reason(&migration(&client, "slow").await) == "WaitingForServer" })
        .await;
    wait_for(&client, "slow", "Succeeded").await;
}

async fn slow_status_writes_do_not_delay_running_migrations(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, _) = prepared(&cluster).await;
    // Whatever is said about those that wait, and every Event, takes for ever.
    let rule = |seen: &restow_lab::Seen, _| {
        if seen.path.contains("/waiting-") || seen.path.ends_with("/events") {
            return Action::Wait(Box::pin(std::future::pending()));
        }
        Action::Forward
    };
    let (recorder, _traffic) = Traffic::record(&cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let widgets = flipped(&client, "diligents").await;
    ask_for(&client, "at-work", &widgets.name()).await;
    for index in 0..10 {
        ask_for(&client, &format!("waiting-{index}"), &widgets.name()).await;
    }
    let controller = Controller::start(&restow, &["--controllers", "migrator", "--page-size", "20"]).await;
    let began = std::time::Instant::now();
    wait_for(&client, "at-work", "Succeeded").await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(45), "it took {took:?}");
    assert!(controller.get("/healthz").await.starts_with("HTTP/1.1 200"));
    let new = format!("{}/v2", widgets.group());
    assert_eq!(widgets.stored_as(&cluster).await.get(&new), Some(&MANY));
}
