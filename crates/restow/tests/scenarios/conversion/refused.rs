//! Conversions that are not carried out, and why; and what happens when the cause is gone.

use std::collections::BTreeMap;

use restow_lab::ClusterSpec;
use serde_json::json;

use super::fixture::*;
use crate::controller::{is, migrations};
use crate::support::{CRDS, Lab, Widgets, name, patch};

scenarios! {
    a_conversion_that_would_lose_fields_is_refused_with_their_names,
    a_conversion_to_a_version_that_is_not_there_or_not_served_is_refused,
    a_conversion_whose_objects_would_not_fit_the_new_schema_is_refused_and_can_be_retried,
    a_managed_definition_is_left_to_its_source,
}

async fn a_conversion_that_would_lose_fields_is_refused_with_their_names(lab: Lab) {
    const OBJECTS: usize = 60;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let webhook = webhook(&cluster, false).await;
    let uncoloured = json!({"size": {"type": "integer"}, "padding": {"type": "string"}});
    for (plural, v2, by) in [
        // A webhook that drops a field, and none, so that the API server drops it.
        ("dropped", renamed(), Some(webhook.conversion())),
        ("pruned", uncoloured, None),
    ] {
        let widgets = Widgets { plural };
        define(&client, &widgets, &crd(&widgets, v2, by)).await;
        create(&client, &widgets, OBJECTS, &[7, 22, 41]).await;
        let before = definition(&client, &widgets).await["metadata"]["generation"].clone();
        let object = conversion(plural, &widgets, ("v1", "v2"), json!({}));
        let ran = run_once(&restow, &object, &["-o", "json"]).await.expect(4);
        let report = ran.report();
        assert_eq!(reason(&report, "Failed"), "FieldsLost", "{report:#}");
        let named: Vec<_> = report["status"]["refused"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["name"].as_str().unwrap().to_owned(), one["fields"].clone()))
            .collect();
        let fields = json!(["spec.colour"]);
        assert_eq!(named, [7, 22, 41].map(|index| (name(index), fields.clone())), "{report:#}");
        assert_eq!(report["status"]["check"]["objects"], OBJECTS);
        // Nothing was changed.
        let crd = definition(&client, &widgets).await;
        assert_eq!(crd["metadata"]["generation"], before);
        assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(
            stored(&cluster, &widgets, ["size", "length"]).await,
            BTreeMap::from([("v1".to_owned(), OBJECTS)])
        );
        assert!(migrations(&client, &widgets.name()).await.is_empty());

        // A part without these objects can be tried; nothing is changed by that either.
        patch(&client, &widgets.path("v1", &name(22)), &json!({"metadata": {"labels": {"half": "1"}}})).await;
        let selector = json!({"selector": {"matchLabels": {"half": "0"}}, "namespace": "default"});
        let object = conversion(&format!("{plural}-trial"), &widgets, ("v1", "v2"), selector);
        let ran = run_once(&restow, &object, &["-o", "json"]).await.expect(0);
        let report = ran.report();
        assert_eq!(reason(&report, "Succeeded"), "Tried", "{report:#}");
        assert_eq!(report["status"]["check"]["objects"], OBJECTS / 2 - 1, "{report:#}");
        assert!(!is(&report, "StorageVersionSet") && !is(&report, "Verified") && !is(&report, "Pruned"));
        assert_eq!(definition(&client, &widgets).await["metadata"]["generation"], before);
    }
}

async fn a_conversion_to_a_version_that_is_not_there_or_not_served_is_refused(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "refusals" };
    let mut crd = crd(&widgets, alike(), None);
    define(&client, &widgets, &crd).await;
    create(&client, &widgets, 5, &[]).await;
    crd["spec"]["versions"][1]["served"] = false.into();
    patch(
        &client,
        &format!("{CRDS}/{}", widgets.name()),
        &json!({"spec": {"versions": crd["spec"]["versions"]}}),
    )
    .await;
    for (name, versions, expected, words) in [
        ("unserved", ("v1", "v2"), "VersionNotServed", "v2 of refusals.refusals.example.com is not served"),
        ("unknown", ("v1", "v7"), "UnknownVersion", "has no version v7; it has v1, v2"),
        ("from-unknown", ("v0", "v2"), "UnknownVersion", "has no version v0"),
        ("not-stored", ("v2", "v1"), "VersionNotServed", "v2 of refusals.refusals.example.com is not served"),
    ] {
        let object = conversion(name, &widgets, versions, json!({}));
        let ran = run_once(&restow, &object, &["-o", "json"]).await.expect(4);
        let report = ran.report();
        assert_eq!(reason(&report, "Failed"), expected, "{report:#}");
        assert!(report["status"]["conditions"].to_string().contains(words), "{report:#}");
    }
    assert_eq!(stored(&cluster, &widgets, ["size", "size"]).await, BTreeMap::from([("v1".to_owned(), 5)]));
}

async fn a_conversion_whose_objects_would_not_fit_the_new_schema_is_refused_and_can_be_retried(lab: Lab) {
    const OBJECTS: usize = 60;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "misfits" };
    // Nothing is lost on the way, but nobody could change these objects in v2 any more.
    let mut narrow = alike();
    narrow["size"]["maximum"] = json!(57);
    define(&client, &widgets, &crd(&widgets, narrow, None)).await;
    create(&client, &widgets, OBJECTS, &[]).await;
    let object = conversion("misfits", &widgets, ("v1", "v2"), json!({}));
    let report = run_once(&restow, &object, &["-o", "json"]).await.expect(4).report();
    assert_eq!(reason(&report, "Failed"), "FieldsLost", "{report:#}");
    let refused = report["status"]["refused"].as_array().unwrap();
    let named: Vec<_> = refused.iter().map(|one| (one["name"].clone(), one["fields"].clone())).collect();
    assert_eq!(named, [58, 59].map(|index| (json!(name(index)), json!(["spec.size"]))), "{report:#}");
    assert!(refused[0]["message"].as_str().unwrap().contains("would not fit the schema of v2"), "{report:#}");
    assert!(!report.to_string().contains("58 "), "no value is shown: {report:#}");
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1"]));

    let shown = restow.run(&["status", "-o", "json"]).await.expect(0).report();
    assert_eq!(
        (&shown["conversions"][0]["phase"], &shown["conversions"][0]["refused"]),
        (&json!("Failed"), &json!(2))
    );
    // It stays failed however often it is run, until a retry is requested.
    run_once(&restow, &object, &[]).await.expect(4);
    for index in [58, 59] {
        patch(&client, &widgets.path("v1", &name(index)), &json!({"spec": {"size": 0}})).await;
    }
    run_once(&restow, &object, &[]).await.expect(4);
    let retried = restow.run(&["retry", "misfits"]).await.expect(0);
    assert!(retried.stdout.contains("misfits: will be retried"), "{retried:#?}");
    let report = run_once(&restow, &object, &["-o", "json"]).await.expect(0).report();
    assert!(is(&report, "Succeeded") && report["status"]["refused"].is_null(), "{report:#}");
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
    let refused = restow.run(&["retry", "misfits"]).await.expect(2);
    assert!(refused.stderr.contains("only a failed Conversion can be retried"), "{refused:#?}");

    // A selector that no server understands fails at once, and does not wait for ever.
    let selector =
        json!({"selector": {"matchExpressions": [{"key": "half", "operator": "Near", "values": ["1"]}]}});
    let object = conversion("mistyped", &widgets, ("v2", "v1"), selector);
    let report = run_once(&restow, &object, &["-o", "json"]).await.expect(4).report();
    assert_eq!(reason(&report, "Failed"), "InvalidSpec", "{report:#}");
    assert!(report["status"]["conditions"].to_string().contains("spec.selector is not valid"), "{report:#}");
}

async fn a_managed_definition_is_left_to_its_source(lab: Lab) {
    const OBJECTS: usize = 30;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "charts" };
    define(&client, &widgets, &crd(&widgets, alike(), None)).await;
    create(&client, &widgets, OBJECTS, &[]).await;
    let path = format!("{CRDS}/{}", widgets.name());
    patch(&client, &path, &json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}})).await;
    let before = definition(&client, &widgets).await;
    let object = conversion("charts", &widgets, ("v1", "v2"), json!({"stopServing": true}));
    let ran = run_once(&restow, &object, &[]).await.expect(4);
    assert!(
        ran.stdout.contains("managed by Helm") && ran.stdout.contains("storage: true for v2"),
        "{ran:#?}"
    );
    assert_eq!(definition(&client, &widgets).await, before, "the definition was changed");

    // Each change arrives from the source, and it goes on from there.
    let mut versions = before["spec"]["versions"].clone();
    versions[0]["storage"] = false.into();
    versions[1]["storage"] = true.into();
    set_versions(&client, &widgets, &versions).await;
    let ran = run_once(&restow, &object, &[]).await.expect(4);
    assert!(ran.stdout.contains("served: false for v1"), "{ran:#?}");
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
    versions[0]["served"] = false.into();
    set_versions(&client, &widgets, &versions).await;
    let report = run_once(&restow, &object, &["-o", "json"]).await.expect(0).report();
    assert!(is(&report, "Succeeded") && is(&report, "ServingStopped"), "{report:#}");
    assert_eq!(
        stored(&cluster, &widgets, ["size", "size"]).await,
        BTreeMap::from([("v2".to_owned(), OBJECTS)])
    );

    // Whoever says so has it changed all the same.
    versions[0]["served"] = true.into();
    set_versions(&client, &widgets, &versions).await;
    let object = conversion("charts-back", &widgets, ("v2", "v1"), json!({"changeManagedDefinition": true}));
    run_once(&restow, &object, &[]).await.expect(0);
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1"]));
}
