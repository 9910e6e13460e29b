//! A StorageState from installation to rollback, on a custom resource.

use std::cell::RefCell;

use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lab::ClusterSpec;
use serde_json::{Value, json};

use crate::controller::{Controller, STATES, is, migrations, prepared, state};
use crate::support::{Lab, Widgets, patch, send, wait};

scenarios! {
    a_storage_state_follows_install_outage_upgrade_and_rollback,
}

async fn a_storage_state_follows_install_outage_upgrade_and_rollback(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "cronwidgets" };
    widgets.define(&client).await;
    widgets.create(&client, 300).await;
    let name = widgets.name();
    let hash = |version: &str| storage_version_hash(&GroupVersion::new(widgets.group(), version), "Widget");
    let (one, two) = (hash("v1"), hash("v2"));
    let versions = [(one.as_str(), "v1"), (two.as_str(), "v2")];
    let expect = async |persisted: &str, current: &str| {
        let expected = Some((persisted.to_owned(), current.to_owned()));
        wait(&format!("persisted {persisted}, current {current}"), || async {
            state(&client, &name, &versions).await == expected
        })
        .await;
    };
    let args = ["--resources", &name, "--poll-interval", "10m", "--pace", "fast"];

    // Installed: unknown, then migrated and refined.
    let seen = RefCell::new(Vec::new());
    let controller = Controller::start(&restow, &args).await;
    wait("the first migration to be taken in", async || {
        let now = state(&client, &name, &versions).await;
        let done = now == Some(("v1".to_owned(), "v1".to_owned()));
        seen.borrow_mut().push(now);
        done
    })
    .await;
    let seen = seen.into_inner();
    assert!(seen.contains(&Some(("Unknown".to_owned(), "v1".to_owned()))), "{seen:?}");
    let first = migrations(&client, &name).await;
    assert_eq!(first.len(), 1, "{first:#?}");
    assert!(is(&first[0], "Succeeded"));
    assert_eq!(first[0]["status"]["progress"]["current"], 300);
    assert_eq!(first[0]["spec"]["storageVersionHash"], one.as_str());

    // A short outage: nothing but a heartbeat.
    assert!(controller.stop().await);
    let controller = Controller::start(&restow, &args).await;
    let uid = |migrations: &[Value]| migrations[0]["metadata"]["uid"].clone();
    widgets_untouched(&client, &name).await;
    expect("v1", "v1").await;
    assert_eq!(uid(&migrations(&client, &name).await), uid(&first), "migrated again after a short outage");

    // Upgraded, and rolled back in the middle: the migration under way is replaced.
    controller.stop().await;
    let slow = ["--resources", &name, "--poll-interval", "10m", "--qps", "20", "--page-size", "20"];
    let controller = Controller::start(&restow, &slow).await;
    widgets.store_as(&client, "v2").await;
    expect("v1 v2", "v2").await;
    wait("the second migration to write", || async {
        migrations(&client, &name)
            .await
            .iter()
            .any(|m| m["status"]["progress"]["rewritten"].as_u64() > Some(0))
    })
    .await;
    let second = migrations(&client, &name).await;
    assert_eq!(second.len(), 1, "{second:#?}");
    assert!(is(&second[0], "Running"));
    assert_eq!(second[0]["spec"]["storageVersionHash"], two.as_str());
    widgets.store_as(&client, "v1").await;
    expect("v1 v2", "v1").await;
    controller.stop().await;

    let controller = Controller::start(&restow, &args).await;
    expect("v1", "v1").await;
    let third = migrations(&client, &name).await;
    assert_eq!(third.len(), 1, "{third:#?}");
    assert_ne!(uid(&third), uid(&second));
    let stored = widgets.stored_as(&cluster).await;
    assert_eq!(stored.get(&format!("{}/v1", widgets.group())), Some(&300), "{stored:?}");
    wait("storedVersions to be pruned", || async { widgets.stored_versions(&client).await == json!(["v1"]) })
        .await;

    // Forth and back while nobody watched: the hash is the same, but not everything is stored so.
    controller.stop().await;
    widgets.store_as(&client, "v2").await;
    let touch = json!({"spec": {"touched": true}});
    patch(&client, &widgets.path("v2", "w-00007"), &touch).await;
    widgets.store_as(&client, "v1").await;
    assert_eq!(widgets.stored_as(&cluster).await.get(&format!("{}/v2", widgets.group())), Some(&1));
    let controller = Controller::start(&restow, &args).await;
    wait("a new migration after a double change to succeed", || async {
        let now = migrations(&client, &name).await;
        // The state follows its migration: until it ends, an old "v1, v1" may be seen.
        now.len() == 1 && uid(&now) != uid(&third) && is(&now[0], "Succeeded")
    })
    .await;
    expect("v1", "v1").await;
    assert_eq!(widgets.stored_as(&cluster).await.get(&format!("{}/v1", widgets.group())), Some(&300));
    let fourth = migrations(&client, &name).await;

    // Away for too long: everything may have happened.
    controller.kill().await;
    let past = json!({"status": {"lastHeartbeatTime": "2020-01-01T00:00:00Z"}});
    patch(&client, &format!("{STATES}/{name}/status"), &past).await;
    let _controller = Controller::start(&restow, &args).await;
    wait("a new migration after a stale heartbeat to succeed", || async {
        let now = migrations(&client, &name).await;
        now.len() == 1 && uid(&now) != uid(&fourth) && is(&now[0], "Succeeded")
    })
    .await;
    expect("v1", "v1").await;
}

/// Waits until the controller has looked: its heartbeat says so.
async fn widgets_untouched(client: &kube::Client, name: &str) {
    let path = format!("{STATES}/{name}");
    let past = json!({"status": {"lastHeartbeatTime": jiff_ago()}});
    patch(client, &format!("{path}/status"), &past).await;
    // Any change of a definition wakes the trigger up; its own label will do.
    let label = json!({"metadata": {"labels": {"touched": "yes"}}});
    patch(client, &format!("{}/{name}", crate::support::CRDS), &label).await;
    wait("a heartbeat", || async {
        send(client, "GET", &path, None).await["status"]["lastHeartbeatTime"]
            != past["status"]["lastHeartbeatTime"]
    })
    .await;
}

/// Older than a heartbeat is renewed, younger than it is stale.
fn jiff_ago() -> String {
    let now = jiff::Timestamp::now() - std::time::Duration::from_secs(400);
    jiff::Timestamp::from_second(now.as_second()).unwrap().to_string()
}
