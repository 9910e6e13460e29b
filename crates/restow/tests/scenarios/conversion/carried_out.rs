//! Conversions from start to end.

use std::collections::BTreeMap;

use restow_lab::ClusterSpec;
use serde_json::json;

use super::fixture::*;
use crate::controller::{Controller, is, migrations};
use crate::support::{Lab, Restow, Widgets, send, try_send, wait};

scenarios! {
    a_conversion_survives_ten_kills_of_its_controller,
    a_conversion_can_be_rolled_back,
    a_conversion_follows_the_migration_of_the_trigger,
    two_conversions_of_one_kind_take_turns,
    the_installed_account_may_carry_out_a_conversion_and_nothing_else,
}

async fn a_conversion_survives_ten_kills_of_its_controller(lab: Lab) {
    const KILLS: usize = 10;
    let objects = lab.objects(10_000);
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "tenfold" };
    let (_webhook, names) = define_convertible(&cluster, &widgets).await;
    create(&client, &widgets, objects, &[1, 2, 3]).await;
    let object = conversion("tenfold", &widgets, ("v1", "v2"), json!({"stopServing": true}));
    send(&client, "POST", CONVERSIONS, Some(&object)).await;

    // Fewer objects are written more slowly, so that there is time for ten kills.
    let qps = if objects < 10_000 { "100" } else { "1000" };
    let args = ["--controllers", WITHOUT_TRIGGER, "--pace", "fast", "--page-size", "50", "--qps", qps];
    let mut steps: BTreeMap<String, usize> = BTreeMap::new();
    for kill in 0..KILLS {
        let mut last = read(&client, "tenfold").await["status"].clone();
        let controller = Controller::start(&restow, &args).await;
        // In every part of the work, and at another place each time: after so many changes of what it reports.
        let pass = [None, Some("rewriting"), Some("verifying")][kill * 3 / KILLS];
        wait("the conversion to come so far", || async {
            let now = &read(&client, "tenfold").await["status"]["progress"]["pass"];
            pass.is_none() || now.as_str() == pass
        })
        .await;
        for _ in 0..=kill % 3 {
            wait("the conversion to go on", || async { read(&client, "tenfold").await["status"] != last })
                .await;
            last = read(&client, "tenfold").await["status"].clone();
        }
        controller.kill().await;
        let now = read(&client, "tenfold").await;
        assert!(!is(&now, "Failed") && !is(&now, "Succeeded"), "{now:#}");
        *steps.entry(now["status"]["step"].as_str().unwrap_or("none").to_owned()).or_default() += 1;
    }
    assert!(["Checking", "Rewriting", "Verifying"].iter().all(|step| steps.contains_key(*step)), "{steps:?}");
    let controller = Controller::start(&restow, &args).await;
    let done = wait_for(&client, "tenfold", "Succeeded").await;
    for condition in ["Checked", "StorageVersionSet", "Rewritten", "Verified", "Pruned", "ServingStopped"] {
        assert!(is(&done, condition), "{condition}: {done:#}");
    }
    let metrics = controller.get("/metrics").await;
    assert!(metrics.contains("restow_conversions{phase=\"Succeeded\"} 1"), "{metrics}");
    assert!(controller.stop().await);
    assert_eq!(done["status"]["check"]["objects"], objects, "{done:#}");
    assert_eq!(done["status"]["progress"]["verified"], true, "{done:#}");
    assert_eq!(stored(&cluster, &widgets, names).await, BTreeMap::from([("v2".to_owned(), objects)]));
    let crd = definition(&client, &widgets).await;
    assert_eq!(crd["status"]["storedVersions"], json!(["v2"]));
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let shown: Vec<_> = versions.iter().map(|one| (&one["served"], &one["storage"])).collect();
    assert_eq!(shown, [(&json!(false), &json!(false)), (&json!(true), &json!(true))]);
}

async fn a_conversion_can_be_rolled_back(lab: Lab) {
    const OBJECTS: usize = 120;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "rollback" };
    let (_webhook, names) = define_convertible(&cluster, &widgets).await;
    create(&client, &widgets, OBJECTS, &[5]).await;
    for (name, old, new) in [("forth", "v1", "v2"), ("back", "v2", "v1"), ("forth-again", "v1", "v2")] {
        let object = conversion(name, &widgets, (old, new), json!({}));
        let ran = run_once(&restow, &object, &[]).await.expect(0);
        assert!(ran.stdout.contains(&format!("all objects are stored in {new}")), "{ran:#?}");
        let all = BTreeMap::from([(new.to_owned(), OBJECTS)]);
        assert_eq!(stored(&cluster, &widgets, names).await, all);
        assert_eq!(widgets.stored_versions(&client).await, json!([new]));
        // A finished one is finished, however often it is run.
        run_once(&restow, &object, &[]).await.expect(0);
    }
    // The spec of a Conversion cannot be changed.
    let changed = json!({"spec": {"newVersion": "v3"}});
    let refused =
        try_send(&client, "PATCH", &format!("{CONVERSIONS}/back"), Some(&changed)).await.unwrap_err();
    assert!(refused.to_string().contains("only spec.suspend can be changed"), "{refused}");
}

async fn a_conversion_follows_the_migration_of_the_trigger(lab: Lab) {
    const OBJECTS: usize = 100;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "followed" };
    define(&client, &widgets, &crd(&widgets, alike(), None)).await;
    create(&client, &widgets, OBJECTS, &[]).await;
    let names = widgets.name();
    let args =
        ["--controllers", "migrator,trigger,pruner,conversion", "--resources", &names, "--pace", "fast"];
    let controller = Controller::start(&restow, &args).await;
    send(&client, "POST", CONVERSIONS, Some(&conversion("followed", &widgets, ("v1", "v2"), json!({}))))
        .await;
    let done = wait_for(&client, "followed", "Succeeded").await;
    let migration = done["status"]["migration"].as_str().unwrap();
    assert!(migration.starts_with(&widgets.name()), "the trigger's own: {done:#}");
    assert_eq!(
        stored(&cluster, &widgets, ["size", "size"]).await,
        BTreeMap::from([("v2".to_owned(), OBJECTS)])
    );
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
    // The migration of the trigger outlives the Conversion.
    send(&client, "DELETE", &format!("{CONVERSIONS}/followed"), None).await;
    assert!(controller.stop().await);
    assert!(migrations(&client, &names).await.iter().any(|one| is(one, "Succeeded")));
}

async fn two_conversions_of_one_kind_take_turns(lab: Lab) {
    const OBJECTS: usize = 80;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "turns" };
    define(&client, &widgets, &crd(&widgets, alike(), None)).await;
    create(&client, &widgets, OBJECTS, &[]).await;
    // The second one could not be carried out before the first.
    for (name, versions) in [("a-forth", ("v1", "v2")), ("b-back", ("v2", "v1"))] {
        send(&client, "POST", CONVERSIONS, Some(&conversion(name, &widgets, versions, json!({})))).await;
    }
    let controller =
        Controller::start(&restow, &["--controllers", WITHOUT_TRIGGER, "--qps", "100", "--page-size", "20"])
            .await;
    rewritten(&client, "a-forth", 20).await;
    let waits = read(&client, "b-back").await;
    assert_eq!(reason(&waits, "Running"), "Queued", "{waits:#}");
    assert!(waits["status"]["check"].is_null() && !is(&waits, "StorageVersionSet"), "{waits:#}");
    let first = wait_for(&client, "a-forth", "Succeeded").await;
    let second = wait_for(&client, "b-back", "Succeeded").await;
    assert!(controller.stop().await);
    let since = |object: &serde_json::Value, condition: &str| {
        let all = object["status"]["conditions"].as_array().unwrap();
        all.iter().find(|one| one["type"] == condition).unwrap()["lastTransitionTime"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(since(&first, "Succeeded") <= since(&second, "StorageVersionSet"), "{first:#} {second:#}");
    assert_eq!(
        stored(&cluster, &widgets, ["size", "size"]).await,
        BTreeMap::from([("v1".to_owned(), OBJECTS)])
    );
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1"]));
}

/// `restow convert run`, as a Job would run it: with the account of the controllers and no other permission.
async fn the_installed_account_may_carry_out_a_conversion_and_nothing_else(lab: Lab) {
    const OBJECTS: usize = 40;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "jobs" };
    let mut more = alike();
    more["more"] = json!({"type": "boolean"});
    define(&client, &widgets, &crd(&widgets, more, None)).await;
    create(&client, &widgets, OBJECTS, &[]).await;
    let restow = Restow::new(&cluster);
    let install =
        ["install", &widgets.name(), "--controllers", "migrator,conversion", "--without-deployment"];
    restow.run(&[&install[..], &["--apply", "--wait"]].concat()).await.expect(0);
    wait("Conversions to be served", || async { try_send(&client, "GET", CONVERSIONS, None).await.is_ok() })
        .await;
    let account = "system:serviceaccount:restow-system:restow";
    let groups = ["--as-group", "system:serviceaccounts", "--as-group", "system:authenticated"];
    let as_account = [&["--as", account][..], &groups].concat();

    // It may not create a Conversion: that would be the right to change any definition.
    let object = conversion("job", &widgets, ("v1", "v2"), json!({"stopServing": true}));
    let file = restow.state.path().join("job.json");
    std::fs::write(&file, object.to_string()).unwrap();
    let refused = restow
        .run(&[&["convert", "run", "-f", file.to_str().unwrap()][..], &as_account].concat())
        .await
        .expect(1);
    assert!(refused.stderr.contains("cannot create the Conversion"), "{refused:#?}");

    send(&client, "POST", CONVERSIONS, Some(&object)).await;
    let job = [
        "convert",
        "run",
        "job",
        "--pace",
        "fast",
        "-o",
        "json",
        "--leader-election-namespace",
        "restow-system",
    ];
    let report = restow.run(&[&job[..], &as_account].concat()).await.expect(0).report();
    for condition in ["Checked", "StorageVersionSet", "Verified", "Pruned", "ServingStopped", "Succeeded"] {
        assert!(is(&report, condition), "{condition}: {report:#}");
    }
    assert_eq!(
        stored(&cluster, &widgets, ["size", "size"]).await,
        BTreeMap::from([("v2".to_owned(), OBJECTS)])
    );
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
}
