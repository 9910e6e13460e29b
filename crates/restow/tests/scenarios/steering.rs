//! `restow suspend`, `resume`, `retry` and `cancel`. The test plays the controller.

use restow_lab::ClusterSpec;
use serde_json::{Value, json};

use crate::controller::{MIGRATIONS, STATES, define};
use crate::objects::{create, get, set, standing};
use crate::support::{Lab, Ran, Restow, patch, send, try_send, wait};
use crate::terminal::interrupt;

scenarios! {
    migrations_can_be_suspended_resumed_retried_and_cancelled,
}

async fn migrations_can_be_suspended_resumed_retried_and_cancelled(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);
    define(&client).await;
    suspend_and_resume(&client, &restow).await;
    retry(&client, &restow).await;
    cancel(&client, &restow).await;
    names(&client, &restow).await;
    gone_meanwhile(&client, &restow).await;
}

async fn suspend_and_resume(client: &kube::Client, restow: &Restow) {
    create(client, "runs").await;
    set(client, "runs", &standing("Running", "Rewriting", "", 420, 0)).await;
    let said = restow.run(&["suspend", "runs", "--dry-run"]).await.expect(0).stdout;
    assert_eq!(said, "runs: suspended at 42%, 420/1,000 (dry run)\n");
    assert_eq!(get(client, "runs").await["spec"].get("suspend"), None);

    let waiting = start(restow, &["suspend", "runs", "--wait"]);
    wait("the request", || async { get(client, "runs").await["spec"]["suspend"] == true }).await;
    // A page is finished first.
    set(client, "runs", &standing("Running", "Rewriting", "", 500, 0)).await;
    set(client, "runs", &standing("Suspended", "Suspended", "", 500, 0)).await;
    let said = end(waiting).await.expect(0).stdout;
    assert_eq!(said, "runs: suspended at 42%, 420/1,000\nruns: Suspended, 50%, 500/1,000\n");
    let said = restow.run(&["suspend", "runs", "--wait"]).await.expect(0).stdout;
    assert_eq!(said, "runs: is already suspended\nruns: Suspended, 50%, 500/1,000\n");

    let waiting = start(restow, &["resume", "runs", "--wait", "-o", "name"]);
    wait("the request", || async { get(client, "runs").await["spec"]["suspend"] == false }).await;
    set(client, "runs", &standing("Running", "Rewriting", "", 500, 0)).await;
    let said = end(waiting).await.expect(0).stdout;
    assert_eq!(said, "storageversionmigration.migration.k8s.io/runs\n");
    let said =
        restow.run(&["resume", "storageversionmigration.migration.k8s.io/runs"]).await.expect(0).stdout;
    assert_eq!(said, "runs: is not suspended\n");

    // Nobody does it: the time is over, or somebody has enough of waiting.
    let ran = restow.run(&["suspend", "runs", "--wait", "--timeout", "1s"]).await.expect(130);
    assert!(
        ran.stderr.contains("timed out; the request was sent and is still being carried out"),
        "{ran:#?}"
    );
    let waiting = start(restow, &["resume", "runs", "--wait"]);
    end(waiting).await.expect(0);
    let waiting = start(restow, &["suspend", "runs", "--wait"]);
    wait("the request", || async { get(client, "runs").await["spec"]["suspend"] == true }).await;
    interrupt(&waiting);
    end(waiting).await.expect(130);
    set(client, "runs", &standing("Succeeded", "Verified", "", 1000, 0)).await;
    let said = restow.run(&["suspend", "runs", "--wait"]).await.expect(0).stdout;
    assert_eq!(said, "runs: has already succeeded\nruns: Succeeded, 100%, 1,000/1,000\n");
}

async fn retry(client: &kube::Client, restow: &Restow) {
    for (name, then, left, code) in
        [("good", "Succeeded", 0, 0), ("bad", "Failed", 2, 3), ("worse", "Failed", 0, 1)]
    {
        create(client, name).await;
        set(client, name, &standing("Running", "Rewriting", "", 420, 0)).await;
        let ran = restow.run(&["retry", name]).await.expect(2);
        assert!(ran.stderr.contains(&format!("{name} is Running: only a failed migration")), "{ran:#?}");
        set(client, name, &standing("Failed", "Quarantined", "2 objects were left", 998, 2)).await;
        restow.run(&["retry", name, "--dry-run"]).await.expect(0);
        assert!(!asked(&get(client, name).await));

        let waiting = start(restow, &["retry", name, "--wait"]);
        wait("the request", || async { asked(&get(client, name).await) }).await;
        let said = restow.run(&["retry", name]).await.expect(0).stdout;
        assert_eq!(said, format!("{name}: a retry was already requested\n"));
        // As a controller does it: the request is taken away, then it runs, then it ends.
        let taken = json!({"metadata": {"annotations": {restow_api::RETRY: null}}});
        patch(client, &format!("{MIGRATIONS}/{name}"), &taken).await;
        set(client, name, &standing("Running", "Retrying", "", 998, 2)).await;
        set(client, name, &standing(then, "Ended", "", 1000 - left, left)).await;
        let ran = end(waiting).await.expect(code);
        assert!(ran.stdout.starts_with(&format!("{name}: retrying 2 quarantined objects\n")), "{ran:#?}");
        assert!(ran.stdout.contains(&format!("{name}: {then}, 100%")), "{ran:#?}");
    }
    // More than are named, and one that cannot be retried: then nothing is written.
    set(client, "bad", &standing("Failed", "Quarantined", "", 800, 200)).await;
    restow.run(&["retry", "bad", "good"]).await.expect(2);
    assert!(!asked(&get(client, "bad").await));
    let said = restow.run(&["retry", "bad"]).await.expect(0).stdout;
    assert!(said.contains("the status does not list all 200 quarantined ones"), "{said}");
}

fn asked(migration: &Value) -> bool {
    let annotation = &migration["metadata"]["annotations"][restow_api::RETRY];
    annotation.as_str().is_some_and(|time| time.parse::<jiff::Timestamp>().is_ok())
}

async fn cancel(client: &kube::Client, restow: &Restow) {
    create(client, "halfway").await;
    set(client, "halfway", &standing("Running", "Rewriting", "", 419, 1)).await;
    let state = json!({
        "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageState",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"resource": {"group": "example.com", "resource": "widgets"}},
    });
    send(client, "POST", STATES, Some(&state)).await;
    let hashes = json!({"status": {
        "persistedStorageVersionHashes": ["old=", "new="], "currentStorageVersionHash": "new=",
    }});
    patch(client, &format!("{STATES}/widgets.example.com/status"), &hashes).await;

    let ran = restow.run(&["cancel", "halfway", "--dry-run"]).await.expect(0);
    assert!(ran.stdout.ends_with(" (dry run)\n"), "{ran:#?}");
    get(client, "halfway").await;

    // It is gone only when whoever holds it has let go.
    patch(
        client,
        &format!("{MIGRATIONS}/halfway"),
        &json!({"metadata": {"finalizers": ["example.com/hold"]}}),
    )
    .await;
    let waiting = start(restow, &["cancel", "halfway", "--wait"]);
    wait("the deletion", || async {
        get(client, "halfway").await["metadata"].get("deletionTimestamp").is_some()
    })
    .await;
    patch(client, &format!("{MIGRATIONS}/halfway"), &json!({"metadata": {"finalizers": null}})).await;
    let ran = end(waiting).await.expect(0);
    let expected = "halfway: cancelled: 42%, 420/1,000: 419 rewritten, 0 already current, 1 quarantined\n";
    assert_eq!(ran.stdout, expected, "{ran:#?}");
    let note = "storage state widgets.example.com still lists old=, new=; to create another migration, run: restow init";
    assert!(ran.stderr.contains(note), "{ran:#?}");
    assert!(try_send(client, "GET", &format!("{MIGRATIONS}/halfway"), None).await.is_err());
}

async fn names(client: &kube::Client, restow: &Restow) {
    create(client, "widgets.example.com-x7k2p").await;
    for command in ["suspend", "resume", "retry", "cancel"] {
        // The first is right and the second is not: nothing is written.
        let ran = restow.run(&[command, "good", "widgets.example.com"]).await.expect(2);
        assert!(ran.stderr.contains("there is no migration \"widgets.example.com\""), "{ran:#?}");
        assert!(ran.stderr.contains("widgets.example.com-x7k2p") && ran.stdout.is_empty(), "{ran:#?}");
        let ran = restow.run(&[command, "zzzzz"]).await.expect(2);
        assert!(ran.stderr.contains("to see them all, run: restow status"), "{ran:#?}");
        restow.run(&[command]).await.expect(2);
        restow.run(&[command, "good", "--dry-run", "--wait"]).await.expect(2);
        restow.run(&[command, "good", "--timeout", "1s"]).await.expect(2);
    }
    get(client, "good").await;
}

async fn gone_meanwhile(client: &kube::Client, restow: &Restow) {
    create(client, "brief").await;
    let waiting = start(restow, &["suspend", "brief", "--wait"]);
    wait("the request", || async { get(client, "brief").await["spec"]["suspend"] == true }).await;
    send(client, "DELETE", &format!("{MIGRATIONS}/brief"), None).await;
    let ran = end(waiting).await.expect(1);
    assert!(ran.stdout.ends_with("brief: deleted meanwhile\n"), "{ran:#?}");
}

fn start(restow: &Restow, args: &[&str]) -> tokio::process::Child {
    restow.command(args).spawn().unwrap()
}

async fn end(child: tokio::process::Child) -> Ran {
    let patience = std::time::Duration::from_secs(90);
    let output = tokio::time::timeout(patience, child.wait_with_output()).await;
    output.expect("it ends").unwrap().into()
}
