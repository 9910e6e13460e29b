//! The trigger reacts at once to changes by users and other processes.

use std::collections::BTreeMap;

use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lab::{Action, ClusterSpec};
use serde_json::{Value, json};

use crate::controller::{Controller, STATES, ask_for, is, migration, migrations, prepared, state, wait_for};
use crate::install::CONTROLLERS;
use crate::replaced::events;
use crate::support::{Lab, Restow, Widgets, patch, send, try_send, wait};
use crate::traffic::{Traffic, status};

scenarios! {
    other_migrations_and_deleted_states_are_noticed_at_once,
    unreadable_metrics_delay_only_encrypted_resources,
    ; real:
    // It needs kube-controller-manager.
    an_unfinished_migration_continues_after_a_reinstall,
    an_unfinished_migration_continues_after_a_long_absence_of_the_trigger,
}

async fn other_migrations_and_deleted_states_are_noticed_at_once(lab: Lab) {
    const MANY: usize = 40;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "followed" };
    widgets.define(&client).await;
    widgets.create(&client, MANY).await;
    widgets.store_as(&client, "v2").await;
    let name = widgets.name();
    let hash = storage_version_hash(&GroupVersion::new(widgets.group(), "v2"), "Widget");
    let settled = async || state(&client, &name, &[(&hash, "v2")]).await == Some(("v2".into(), "v2".into()));

    // A user's own migrations are replaced when the trigger starts, and an Event says so of each.
    let made = restow.run(&["init", &name, "-o", "json"]).await.expect(0).report();
    let initialized = &made["created"][0]["metadata"]["name"];
    ask_for(&client, "mine", &name).await;
    let args = ["--resources", &name, "--poll-interval", "10m", "--controllers"];
    let _trigger = Controller::start(&restow, &[&args[..], &["trigger"]].concat()).await;
    wait("an Event about each of the user's migrations", || async {
        let events = events(&client, "StorageVersionMigration").await;
        [&json!("mine"), initialized].iter().all(|name| {
            let told =
                |event: &Value| event["reason"] == "Superseded" && event["regarding"]["name"] == **name;
            events.iter().any(told)
        })
    })
    .await;
    wait("the trigger's own migration", || async { migrations(&client, &name).await.len() == 1 }).await;

    // Another process ends the migration.
    let _migrator = Controller::start(&restow, &[&args[..], &["migrator"]].concat()).await;
    wait("the state to be settled", &settled).await;
    let first = migrations(&client, &name).await[0]["metadata"]["uid"].clone();
    let shown = send(&client, "GET", &format!("{STATES}/{name}"), None).await["status"].clone();
    assert_eq!(shown["currentStorageVersion"], "v2", "{shown:#}");
    assert_eq!(shown["persistedStorageVersions"], json!(["v2"]), "{shown:#}");
    let table = restow.run(&["status"]).await.expect(0).stdout;
    assert!(table.contains(&format!("v2 ({hash})")), "{table}");

    // Deleting the state is how people reset a resource.
    send(&client, "DELETE", &format!("{STATES}/{name}"), None).await;
    wait("another migration to succeed", || async {
        let all = migrations(&client, &name).await;
        all.len() == 1 && all[0]["metadata"]["uid"] != first && is(&all[0], "Succeeded")
    })
    .await;
    wait("the state to be settled again", &settled).await;
    let stored = BTreeMap::from([(format!("{}/v2", widgets.group()), MANY)]);
    assert_eq!(widgets.stored_as(&cluster).await, stored);
}

async fn unreadable_metrics_delay_only_encrypted_resources(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, _) = prepared(&cluster).await;
    let widgets = Widgets { plural: "unencrypted" };
    widgets.define(&client).await;
    widgets.store_as(&client, "v2").await;
    let rule = |seen: &restow_lab::Seen, _| match seen.path == "/metrics" {
        true => status(503, "ServiceUnavailable", "metrics are broken"),
        false => Action::Forward,
    };
    let (recorder, _traffic) = Traffic::record(&cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let resources = format!("secrets,{}", widgets.name());
    let _controller = Controller::start(&restow, &["--resources", &resources, "--poll-interval", "1s"]).await;
    wait("a migration of what is not encrypted", || async {
        migrations(&client, &widgets.name()).await.len() == 1
    })
    .await;
    let hash = storage_version_hash(&GroupVersion::new(widgets.group(), "v2"), "Widget");
    let known = state(&client, &widgets.name(), &[(&hash, "v2")]).await;
    assert_eq!(known, Some(("Unknown".to_owned(), "v2".to_owned())));
    // Under which key Secrets are written, nobody knows.
    let secrets = try_send(&client, "GET", &format!("{STATES}/secrets"), None).await.unwrap();
    assert_eq!(secrets["status"]["currentEncryptionConfigHash"], "Unknown", "{secrets:#}");
    assert_eq!(migrations(&client, "secrets").await, Vec::<Value>::new());
}

async fn an_unfinished_migration_continues_after_a_reinstall(lab: Lab) {
    const MANY: usize = 200;
    let cluster = lab.cluster(ClusterSpec::new().controller_manager(&CONTROLLERS)).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);
    let install = ["install", "--without-deployment", "--apply", "--wait"];
    restow.run(&install).await.expect(0);
    let widgets = Widgets { plural: "reinstalled" };
    widgets.define(&client).await;
    widgets.create(&client, MANY).await;
    widgets.store_as(&client, "v2").await;
    ask_for(&client, "unfinished", &widgets.name()).await;
    let slow = ["--controllers", "migrator", "--page-size", "20", "--qps", "40"];
    let controller = Controller::start(&restow, &slow).await;
    wait("two pages", || async {
        migration(&client, "unfinished").await["status"]["progress"]["rewritten"].as_u64() >= Some(40)
    })
    .await;
    controller.stop().await;
    let before = migration(&client, "unfinished").await["status"]["progress"].clone();
    assert!(before["rewritten"].as_u64() < Some(MANY as u64), "{before:#}");

    restow.run(&["uninstall", "--wait"]).await.expect(0);
    restow.run(&install).await.expect(0);
    let (recorder, traffic) = Traffic::record(&cluster, |_: &restow_lab::Seen, _| Action::Forward).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let _controller = Controller::start(&restow, &["--controllers", "migrator", "--page-size", "20"]).await;
    let after = wait_for(&client, "unfinished", "Succeeded").await["status"]["progress"].clone();
    assert_eq!((&after["startedAt"], &after["listed"]), (&before["startedAt"], &json!(MANY)), "{after:#}");
    // The first page was written before, and is only looked at by the pass that verifies.
    assert_eq!(traffic.patches_of("/w-00000").len(), 1);
    let stored = BTreeMap::from([(format!("{}/v2", widgets.group()), MANY)]);
    assert_eq!(widgets.stored_as(&cluster).await, stored);
}

async fn an_unfinished_migration_continues_after_a_long_absence_of_the_trigger(lab: Lab) {
    const MANY: usize = 200;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "abandoned" };
    widgets.define(&client).await;
    widgets.create(&client, MANY).await;
    widgets.store_as(&client, "v2").await;
    let name = widgets.name();
    let args = ["--resources", &name, "--page-size", "20"];
    let controller = Controller::start(&restow, &[&args[..], &["--qps", "40"]].concat()).await;
    wait("two pages", || async {
        let all = migrations(&client, &name).await;
        all.len() == 1 && all[0]["status"]["progress"]["rewritten"].as_u64() >= Some(40)
    })
    .await;
    controller.stop().await;
    let before = migrations(&client, &name).await[0].clone();
    assert!(before["status"]["progress"]["rewritten"].as_u64() < Some(MANY as u64), "{before:#}");
    let long_ago = json!({"status": {"lastHeartbeatTime": "2020-01-01T00:00:00Z"}});
    patch(&client, &format!("{STATES}/{name}/status"), &long_ago).await;

    let (recorder, traffic) = Traffic::record(&cluster, |_: &restow_lab::Seen, _| Action::Forward).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let _controller = Controller::start(&restow, &args).await;
    wait("an Event that says so", || async {
        events(&client, "StorageState").await.iter().any(|event| event["reason"] == "StaleHeartbeat")
    })
    .await;
    let made = before["metadata"]["name"].as_str().unwrap();
    let after = wait_for(&client, made, "Succeeded").await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "{after:#}");
    assert_eq!(
        after["status"]["progress"]["startedAt"], before["status"]["progress"]["startedAt"],
        "{after:#}"
    );
    // The first page was written before, and is only looked at by the pass that verifies.
    assert_eq!(traffic.patches_of("/w-00000").len(), 1);
    let hash = storage_version_hash(&GroupVersion::new(widgets.group(), "v2"), "Widget");
    wait("the state to be settled", || async {
        state(&client, &name, &[(&hash, "v2")]).await == Some(("v2".into(), "v2".into()))
    })
    .await;
    assert_eq!(migrations(&client, &name).await.len(), 1);
    let stored = BTreeMap::from([(format!("{}/v2", widgets.group()), MANY)]);
    assert_eq!(widgets.stored_as(&cluster).await, stored);
}
