//! Conversions by rules, where no webhook converts.

use std::collections::BTreeMap;

use restow_lab::ClusterSpec;
use serde_json::json;

use super::fixture::*;
use crate::controller::{Controller, is};
use crate::support::{CRDS, Lab, Widgets, name, patch, send, wait};

scenarios! {
    a_conversion_in_place_converts_by_rules_and_names_what_others_wrote,
    a_conversion_in_place_survives_kills_of_its_controller,
}

async fn a_conversion_in_place_converts_by_rules_and_names_what_others_wrote(lab: Lab) {
    const OBJECTS: usize = 150;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    define_rules(&client).await;
    let widgets = Widgets { plural: "inplace" };
    define(&client, &widgets, &crd(&widgets, renamed(), None)).await;
    create(&client, &widgets, OBJECTS, &[3]).await;

    // Without a statement that nobody writes meanwhile, and without rules, it is refused.
    for (name, more) in [("unstated", json!({})), ("unruled", json!({"convertInPlace": true}))] {
        let object = conversion(name, &widgets, ("v1", "v2"), more);
        let report = run_once(&restow, &object, &["-o", "json"]).await.expect(4).report();
        assert_eq!(reason(&report, "Failed"), "FieldsLost", "{report:#}");
        assert_eq!(report["status"]["check"]["refused"], OBJECTS, "{report:#}");
    }
    assert_eq!(
        stored(&cluster, &widgets, ["size", "length"]).await,
        BTreeMap::from([("v1".to_owned(), OBJECTS)])
    );

    send(&client, "POST", RULES, Some(&rules(&widgets))).await;
    let object = conversion("inplace", &widgets, ("v1", "v2"), json!({"convertInPlace": true}));
    let report = run_once(&restow, &object, &["-o", "json"]).await.expect(0).report();
    assert!(
        is(&report, "ConvertedInPlace") && is(&report, "Verified") && is(&report, "Pruned"),
        "{report:#}"
    );
    assert_eq!(report["status"]["inPlace"]["converted"], OBJECTS, "{report:#}");
    assert_eq!(
        stored(&cluster, &widgets, ["size", "length"]).await,
        BTreeMap::from([("v2".to_owned(), OBJECTS)])
    );
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
    let crd = definition(&client, &widgets).await;
    assert!(crd["metadata"]["annotations"]["restow.dev/converting-in-place"].is_null(), "{crd:#}");
    let one = send(&client, "GET", &widgets.path("v2", &name(3)), None).await;
    assert_eq!(one["spec"]["colour"], "blue", "{one:#}");

    // Back again, as if a Conversion had been killed when it had set the storage version, and a user wrote an object since.
    let page = send(&client, "GET", &format!("{}?limit=1", widgets.path("v1", "")), None).await;
    let since = page["metadata"]["resourceVersion"].as_str().unwrap();
    let mut versions = definition(&client, &widgets).await["spec"]["versions"].clone();
    versions[0]["storage"] = true.into();
    versions[1]["storage"] = false.into();
    let begun = json!({
        "metadata": {"annotations": {"restow.dev/converting-in-place": format!("v1 {since}")}},
        "spec": {"versions": versions},
    });
    patch(&client, &format!("{CRDS}/{}", widgets.name()), &begun).await;
    let relabelled = json!({"metadata": {"labels": {"team": "blue"}}});
    patch(&client, &widgets.path("v2", &name(7)), &relabelled).await;
    // A rewrite would drop the fields of all objects.
    let ran = restow.run(&["migrate", &widgets.name()]).await.expect(1);
    assert!(ran.stderr.contains("converts its objects in place"), "{ran:#?}");
    let object = conversion("back", &widgets, ("v2", "v1"), json!({"convertInPlace": true}));
    let report = run_once(&restow, &object, &["-o", "json"]).await.expect(3).report();
    assert_eq!(reason(&report, "Failed"), "Quarantined", "{report:#}");
    let left = report["status"]["quarantined"].as_array().unwrap();
    assert_eq!((left.len(), &left[0]["name"]), (1, &json!(name(7))), "{report:#}");
    assert_eq!(report["status"]["inPlace"]["converted"], OBJECTS - 1, "{report:#}");
    assert!(!is(&report, "Verified"), "{report:#}");

    // Its owner corrects the object, and another Conversion goes on from there.
    let corrected = json!({
        "metadata": {"annotations": {"restow.dev/converted-in-place": format!("v1 {since}")}}, "spec": {"size": 7},
    });
    patch(&client, &widgets.path("v1", &name(7)), &corrected).await;
    let object = conversion("back-again", &widgets, ("v2", "v1"), json!({"convertInPlace": true}));
    let report = run_once(&restow, &object, &["-o", "json"]).await.expect(0).report();
    assert_eq!(report["status"]["inPlace"]["converted"], 0, "{report:#}");
    assert_eq!(
        stored(&cluster, &widgets, ["size", "length"]).await,
        BTreeMap::from([("v1".to_owned(), OBJECTS)])
    );
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1"]));
}

async fn a_conversion_in_place_survives_kills_of_its_controller(lab: Lab) {
    const OBJECTS: usize = 400;
    const KILLS: usize = 4;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    define_rules(&client).await;
    let widgets = Widgets { plural: "halfway" };
    define(&client, &widgets, &crd(&widgets, renamed(), None)).await;
    create(&client, &widgets, OBJECTS, &[3]).await;
    send(&client, "POST", RULES, Some(&rules(&widgets))).await;
    // Rules that no webhook serves convert nothing: convert check shows what the cluster does, and says so.
    let checked = restow.run(&["convert", "check", &widgets.name(), "-o", "json"]).await.expect(3);
    assert_eq!(checked.report()["by"], "API server", "{checked:#?}");
    assert!(checked.stderr.contains("do not use the ConversionRules halfway"), "{checked:#?}");
    let object = conversion("halfway", &widgets, ("v1", "v2"), json!({"convertInPlace": true}));
    send(&client, "POST", CONVERSIONS, Some(&object)).await;
    let converted = async || {
        let mut count = 0;
        let take = |_: &str, bytes: &[u8]| {
            let object: serde_json::Value = serde_json::from_slice(bytes).unwrap();
            count += usize::from(object["spec"]["length"].is_number());
        };
        cluster.store().for_each(&widgets.prefix(), take).await.unwrap();
        count
    };
    let args = ["--controllers", WITHOUT_TRIGGER, "--pace", "fast"];
    for kill in 0..KILLS {
        let controller = Controller::start(&restow, &args).await;
        // In the middle of a page, too: the first has 20 objects, and each that follows is twice as long.
        wait("some more objects to be converted", || async { converted().await > kill * 45 }).await;
        controller.kill().await;
        assert!(!is(&read(&client, "halfway").await, "Failed"));
    }
    let controller = Controller::start(&restow, &args).await;
    let done = wait_for(&client, "halfway", "Succeeded").await;
    assert!(controller.stop().await);
    assert!(is(&done, "ConvertedInPlace") && done["status"]["quarantined"].is_null(), "{done:#}");
    // Each object was converted once: a second time would find no size, and drop the length.
    assert_eq!(
        stored(&cluster, &widgets, ["size", "length"]).await,
        BTreeMap::from([("v2".to_owned(), OBJECTS)])
    );
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
    let crd = definition(&client, &widgets).await;
    assert!(crd["metadata"]["annotations"]["restow.dev/converting-in-place"].is_null(), "{crd:#}");
    assert_eq!(stored_object(&cluster, &widgets, 3).await["spec"]["colour"], "blue");
}
