//! Conversions: checked, carried out, resumed, refused, rolled back, suspended and deleted; judged by what is stored.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::CustomResourceExt as _;
use restow_convert::rules::ConversionRules;
use restow_lab::{Cluster, ClusterSpec, ConversionWebhook, suite};
use serde_json::{Value, json};

use crate::controller::{self, Controller, is, migrations};
use crate::support::{CRDS, Lab, Restow, Widgets, create_all, name, patch, send, try_send, wait};

scenarios! {
    a_conversion_survives_ten_kills_of_its_controller,
    a_conversion_that_would_lose_fields_is_refused_with_their_names,
    a_conversion_can_be_rolled_back,
    a_conversion_to_a_version_that_is_not_there_or_not_served_is_refused,
    a_conversion_whose_storage_version_is_set_back_fails,
    a_conversion_can_be_suspended_resumed_and_deleted,
    a_conversion_follows_the_migration_of_the_trigger,
    a_conversion_in_place_converts_by_rules_and_names_what_others_wrote,
}

/// The path of all Conversions.
const CONVERSIONS: &str = "/apis/restow.dev/v1alpha1/conversions";
/// The path of all ConversionRules.
const RULES: &str = "/apis/restow.dev/v1alpha1/conversionrules";
/// The controllers without the trigger.
const WITHOUT_TRIGGER: &str = "migrator,pruner,conversion";

/// As admin at the first server of a cluster with all definitions installed.
async fn prepared(cluster: &Cluster) -> (kube::Client, Restow) {
    let (client, restow) = controller::prepared(cluster).await;
    send(&client, "POST", CRDS, Some(&serde_json::to_value(restow_api::conversion_crd()).unwrap())).await;
    wait("Conversions to be served", || async { try_send(&client, "GET", CONVERSIONS, None).await.is_ok() })
        .await;
    (client, restow)
}

/// A kind with two versions: v1 has `size` and `colour`, v2 has `length` instead of `size`, and `colour` if so wanted.
fn crd(widgets: &Widgets, v2: Value, conversion: Option<Value>) -> Value {
    let schema = |spec: Value| {
        json!({"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": spec},
        }}})
    };
    let v1 =
        json!({"size": {"type": "integer"}, "colour": {"type": "string"}, "padding": {"type": "string"}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": widgets.name()},
        "spec": {
            "group": widgets.group(), "scope": "Namespaced",
            "names": {"plural": widgets.plural, "singular": widgets.plural, "kind": "Widget"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema(v1)},
                {"name": "v2", "served": true, "storage": false, "schema": schema(v2)},
            ],
            "conversion": conversion.unwrap_or_else(|| json!({"strategy": "None"})),
        },
    })
}

/// The schema of v2 that a webhook converts to.
fn renamed() -> Value {
    json!({"length": {"type": "integer"}, "colour": {"type": "string"}, "padding": {"type": "string"}})
}

/// The schema of v2 that is like v1.
fn alike() -> Value {
    json!({"size": {"type": "integer"}, "colour": {"type": "string"}, "padding": {"type": "string"}})
}

/// A webhook that calls `size` `length` in v2, and does to `colour` what is asked for.
async fn webhook(cluster: &Cluster, keeps_colour: bool) -> ConversionWebhook {
    let convert = move |object: &mut Value, version: &str| {
        let (from, to) = if version.ends_with("/v2") { ("size", "length") } else { ("length", "size") };
        let Some(spec) = object["spec"].as_object_mut() else { return };
        if let Some(value) = spec.remove(from) {
            spec.insert(to.to_owned(), value);
        }
        if !keeps_colour && version.ends_with("/v2") {
            spec.remove("colour");
        }
    };
    ConversionWebhook::start(cluster, convert).await.unwrap()
}

/// Defines a kind that survives, and returns what an object's number is called in v1 and v2. A webhook renames it on the real
/// server. The embedded one has no server-side apply, which objects need whose managedFields a webhook converts: there, v2 has
/// one field more.
async fn define_convertible(
    lab: &Lab,
    cluster: &Cluster,
    widgets: &Widgets,
) -> (Option<ConversionWebhook>, [&'static str; 2]) {
    let client = cluster.client(0).unwrap();
    if let Lab::Real(_) = lab {
        let webhook = webhook(cluster, true).await;
        define(&client, widgets, &crd(widgets, renamed(), Some(webhook.conversion()))).await;
        return (Some(webhook), ["size", "length"]);
    }
    let mut more = alike();
    more["more"] = json!({"type": "boolean"});
    define(&client, widgets, &crd(widgets, more, None)).await;
    (None, ["size", "size"])
}

async fn define(client: &kube::Client, widgets: &Widgets, crd: &Value) {
    send(client, "POST", CRDS, Some(crd)).await;
    wait("the definition to be served", || async {
        try_send(client, "GET", &widgets.path("v1", ""), None).await.is_ok()
            && try_send(client, "GET", &widgets.path("v2", ""), None).await.is_ok()
    })
    .await;
}

/// Makes objects; those of these numbers have a colour.
async fn create(client: &kube::Client, widgets: &Widgets, count: usize, coloured: &[usize]) {
    let group = widgets.group();
    let object = |index: usize| {
        let mut object = json!({
            "apiVersion": format!("{group}/v1"), "kind": "Widget",
            "metadata": {"name": name(index), "labels": {"half": (index % 2).to_string()}},
            "spec": {"size": index, "padding": "x".repeat(900)},
        });
        if coloured.contains(&index) {
            object["spec"]["colour"] = "blue".into();
        }
        object
    };
    create_all(client, &widgets.path("v1", ""), 0..count, object).await;
}

fn conversion(name: &str, widgets: &Widgets, (old, new): (&str, &str), more: Value) -> Value {
    let mut spec = json!({"group": widgets.group(), "kind": "Widget", "oldVersion": old, "newVersion": new});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "restow.dev/v1alpha1", "kind": "Conversion", "metadata": {"name": name}, "spec": spec})
}

async fn read(client: &kube::Client, name: &str) -> Value {
    send(client, "GET", &format!("{CONVERSIONS}/{name}"), None).await
}

/// Waits until a condition of a Conversion is True.
async fn wait_for(client: &kube::Client, name: &str, condition: &str) -> Value {
    suite::wait(Duration::from_secs(600), &format!("{name} to be {condition}"), || async {
        let now = read(client, name).await;
        let other = if condition == "Failed" { "Succeeded" } else { "Failed" };
        assert!(!is(&now, other), "{now:#}");
        is(&now, condition)
    })
    .await;
    read(client, name).await
}

fn reason(object: &Value, condition: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|one| one["type"] == condition);
    found.map_or_else(String::new, |found| found["reason"].as_str().unwrap_or_default().to_owned())
}

/// How many objects are stored in each version, and whether each has its number under the name of its version.
async fn stored(cluster: &Cluster, widgets: &Widgets, names: [&str; 2]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let count = |_: &str, bytes: &[u8]| {
        let object: Value = serde_json::from_slice(bytes).unwrap();
        let version = object["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let number: usize = object["metadata"]["name"].as_str().unwrap()[2..].parse().unwrap();
        let field = names[usize::from(version == "v2")];
        assert_eq!(object["spec"][field], number, "{object}");
        *counts.entry(version).or_default() += 1;
    };
    cluster.store().for_each(&widgets.prefix(), count).await.unwrap();
    counts
}

async fn definition(client: &kube::Client, widgets: &Widgets) -> Value {
    send(client, "GET", &format!("{CRDS}/{}", widgets.name()), None).await
}

async fn a_conversion_survives_ten_kills_of_its_controller(lab: Lab) {
    const KILLS: usize = 10;
    let objects = lab.objects(10_000);
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "tenfold" };
    let (_webhook, names) = define_convertible(&lab, &cluster, &widgets).await;
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

/// Writes a Conversion to a file, and runs `restow convert run`.
async fn run_once(restow: &Restow, object: &Value, more: &[&str]) -> crate::support::Ran {
    let file = restow.state.path().join(format!("{}.json", object["metadata"]["name"].as_str().unwrap()));
    std::fs::write(&file, object.to_string()).unwrap();
    let mut args = vec!["convert", "run", "-f", file.to_str().unwrap(), "--pace", "fast"];
    args.extend(more);
    restow.run(&args).await
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

async fn a_conversion_can_be_rolled_back(lab: Lab) {
    const OBJECTS: usize = 120;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "rollback" };
    let (_webhook, names) = define_convertible(&lab, &cluster, &widgets).await;
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

/// Waits until this many objects were rewritten.
async fn rewritten(client: &kube::Client, name: &str, objects: u64) {
    wait(&format!("{objects} objects to be rewritten"), || async {
        read(client, name).await["status"]["progress"]["rewritten"].as_u64() >= Some(objects)
    })
    .await;
}

async fn a_conversion_whose_storage_version_is_set_back_fails(lab: Lab) {
    const OBJECTS: usize = 400;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "undone" };
    let mut crd = crd(&widgets, alike(), None);
    define(&client, &widgets, &crd).await;
    create(&client, &widgets, OBJECTS, &[]).await;
    let args = ["--controllers", WITHOUT_TRIGGER, "--qps", "60", "--page-size", "20"];
    let controller = Controller::start(&restow, &args).await;
    send(&client, "POST", CONVERSIONS, Some(&conversion("undone", &widgets, ("v1", "v2"), json!({})))).await;
    rewritten(&client, "undone", 40).await;
    crd["spec"]["versions"][0]["storage"] = true.into();
    crd["spec"]["versions"][1]["storage"] = false.into();
    patch(
        &client,
        &format!("{CRDS}/{}", widgets.name()),
        &json!({"spec": {"versions": crd["spec"]["versions"]}}),
    )
    .await;
    let failed = wait_for(&client, "undone", "Failed").await;
    assert_eq!(reason(&failed, "Failed"), "Superseded", "{failed:#}");
    assert!(!is(&failed, "Verified") && !is(&failed, "Pruned"), "{failed:#}");
    assert!(controller.stop().await);
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]));
    let stored: usize = stored(&cluster, &widgets, ["size", "size"]).await.values().sum();
    assert_eq!(stored, OBJECTS);
}

async fn a_conversion_can_be_suspended_resumed_and_deleted(lab: Lab) {
    const OBJECTS: usize = 600;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "paused" };
    define(&client, &widgets, &crd(&widgets, alike(), None)).await;
    create(&client, &widgets, OBJECTS, &[]).await;
    let args = ["--controllers", WITHOUT_TRIGGER, "--qps", "80", "--page-size", "20"];
    let controller = Controller::start(&restow, &args).await;
    let object = conversion("paused", &widgets, ("v1", "v2"), json!({}));
    send(&client, "POST", CONVERSIONS, Some(&object)).await;
    rewritten(&client, "paused", 40).await;
    let path = format!("{CONVERSIONS}/paused");
    patch(&client, &path, &json!({"spec": {"suspend": true}})).await;
    wait("the conversion and its migration to stop", || async {
        let migration = migrations(&client, &widgets.name()).await.pop().unwrap_or_default();
        read(&client, "paused").await["status"]["phase"] == "Suspended"
            && migration["status"]["phase"] == "Suspended"
    })
    .await;
    let before = stored(&cluster, &widgets, ["size", "size"]).await;
    assert!(before["v1"] > 0 && before["v2"] >= 40, "{before:?}");
    // A restart does not wake it: the next controller is given time to look at everything.
    assert!(controller.stop().await);
    let controller = Controller::start(&restow, &args).await;
    wait("the controller to be ready", || async { controller.get("/readyz").await.contains("200 OK") }).await;
    assert_eq!(stored(&cluster, &widgets, ["size", "size"]).await, before);
    patch(&client, &path, &json!({"spec": {"suspend": false}})).await;
    rewritten(&client, "paused", before["v2"] as u64 + 20).await;

    // Deleted with its migration, and nothing is written any more.
    send(&client, "DELETE", &path, None).await;
    wait("the migration to be deleted", || async { migrations(&client, &widgets.name()).await.is_empty() })
        .await;
    assert!(controller.stop().await);
    let after = stored(&cluster, &widgets, ["size", "size"]).await;
    assert!(after["v1"] > 0, "{after:?}");
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]));

    // Another Conversion finishes what it began.
    run_once(&restow, &conversion("finishing", &widgets, ("v1", "v2"), json!({})), &[]).await.expect(0);
    assert_eq!(
        stored(&cluster, &widgets, ["size", "size"]).await,
        BTreeMap::from([("v2".to_owned(), OBJECTS)])
    );
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
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

/// Rules that call `size` `length` in v2.
fn rules(widgets: &Widgets) -> Value {
    json!({
        "apiVersion": "restow.dev/v1alpha1", "kind": "ConversionRules", "metadata": {"name": widgets.plural},
        "spec": {
            "group": widgets.group(), "kind": "Widget",
            "hops": [{"older": "v1", "newer": "v2", "rules": [{"rename": {"older": "spec.size", "newer": "spec.length"}}]}],
        },
    })
}

async fn a_conversion_in_place_converts_by_rules_and_names_what_others_wrote(lab: Lab) {
    const OBJECTS: usize = 150;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let crd_of_rules = serde_json::to_value(ConversionRules::crd()).unwrap();
    send(&client, "POST", CRDS, Some(&crd_of_rules)).await;
    wait("rules to be served", || async { try_send(&client, "GET", RULES, None).await.is_ok() }).await;
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
