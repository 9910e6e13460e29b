//! `restow convert check` on live objects, and `restow convert` as the cluster converts.

use restow_lab::{Cluster, ConversionWebhook};
use serde_json::{Value, json};

use crate::support::{CRDS, Lab, Ran, Restow, Widgets, contents, name, patch, send, try_send, wait};

scenarios! {
    a_webhook_that_loses_a_field_of_some_objects_is_found_out,
    fields_that_another_version_lacks_are_found_out_without_a_webhook,
    rules_are_checked_on_live_objects,
    files_are_converted_as_the_cluster_does,
}

const OBJECTS: usize = 130;

/// A schema whose spec has these fields, all strings.
fn schema(fields: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
    json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}})
}

/// A CRD whose two versions have schemas of their own, and objects of v1 with a colour; the storage version is v1.
async fn coloured(lab: &Lab, plural: &'static str, v2: &[&str]) -> (&'static Cluster, kube::Client, Widgets) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural };
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": widgets.name()},
        "spec": {
            "group": widgets.group(), "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": "Widget"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema(&["color", "size"])},
                {"name": "v2", "served": true, "storage": false, "schema": schema(v2)},
            ],
        },
    });
    send(&client, "POST", CRDS, Some(&crd)).await;
    wait("the definition to be served", || async {
        try_send(&client, "GET", &widgets.path("v1", ""), None).await.is_ok()
            && try_send(&client, "GET", &widgets.path("v2", ""), None).await.is_ok()
    })
    .await;
    for index in 0..OBJECTS {
        let spec = if index % 50 == 7 { json!({"color": "red", "size": "1"}) } else { json!({"size": "1"}) };
        let object = json!({"apiVersion": format!("{}/v1", widgets.group()), "kind": "Widget",
            "metadata": {"name": name(index)}, "spec": spec});
        send(&client, "POST", &widgets.path("v1", ""), Some(&object)).await;
    }
    (cluster, client, widgets)
}

async fn check(restow: &Restow, widgets: &Widgets, more: &[&str]) -> Ran {
    let full = widgets.name();
    let mut args = vec!["convert", "check", &full, "-o", "json"];
    args.extend(more);
    restow.run(&args).await
}

/// The part of a report that is about one pair.
fn pair(report: &Value, from: &str, to: &str) -> Value {
    let pairs = report["pairs"].as_array().unwrap();
    pairs.iter().find(|pair| pair["from"] == from && pair["to"] == to).cloned().unwrap_or_default()
}

/// The names of objects that would lose something.
fn names(pair: &Value) -> Vec<String> {
    pair["named"].as_array().unwrap().iter().map(|one| one["object"].as_str().unwrap().to_owned()).collect()
}

async fn a_webhook_that_loses_a_field_of_some_objects_is_found_out(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "leaks" };
    widgets.define(&client).await;
    widgets.create(&client, OBJECTS).await;
    let webhook = ConversionWebhook::start(cluster, |object, version| {
        let forgets =
            ["w-00003", "w-00077", "w-00129"].iter().any(|name| object["metadata"]["name"] == *name);
        if version.ends_with("/v2") && forgets {
            object["spec"].as_object_mut().unwrap().remove("size");
        }
    });
    let webhook = webhook.await.unwrap();
    let conversion = json!({"spec": {"conversion": webhook.conversion()}});
    patch(&client, &format!("{CRDS}/{}", widgets.name()), &conversion).await;
    let before = contents(&client, &widgets.path("v1", "")).await;
    let restow = Restow::new(cluster);
    let report = check(&restow, &widgets, &[]).await.expect(3).report();
    assert_eq!((&report["by"], &report["notChecked"]), (&json!("webhook"), &json!([])));
    let there = pair(&report, "v1", "v2");
    assert_eq!(
        (&there["objects"], &there["losing"], &there["lost"]),
        (&json!(OBJECTS), &json!(3), &json!({"spec.size": 3}))
    );
    assert_eq!(names(&there), ["default/w-00003", "default/w-00077", "default/w-00129"]);
    assert_eq!(pair(&report, "v2", "v1")["losing"], 0);

    webhook.deny(|name, _| (name == "w-00005").then(|| "not this one".to_owned()));
    let report = check(&restow, &widgets, &[]).await.expect(3).report();
    let there = pair(&report, "v1", "v2");
    assert_eq!(there["refused"], 1, "{there:#}");
    assert!(there["named"].to_string().contains("not this one"), "{there:#}");
    webhook.mend();

    // retire does what convert check does, before it changes anything.
    let crd = format!("{CRDS}/{}", widgets.name());
    let untouched = send(&client, "GET", &crd, None).await;
    let full = widgets.name();
    let retire = ["retire", &full, "v1", "--yes", "--undeprecated-ok", "--ignore-requests", "-o", "json"];
    let refused = restow.run(&retire).await.expect(4);
    let report = refused.report();
    assert_eq!(report["refused"]["reason"], "FieldsLost", "{report:#}");
    let losses =
        ["w-00003", "w-00077", "w-00129"].map(|name| json!(format!("default/{name} would lose spec.size")));
    assert_eq!(report["refused"]["losses"], json!(losses), "{report:#}");
    assert!(refused.stderr.contains("default/w-00077 would lose spec.size"), "{refused:#?}");

    webhook.down().await;
    let down = check(&restow, &widgets, &[]).await.expect(1);
    assert!(down.stderr.contains("webhook failed"), "{down:#?}");
    let dead = restow.run(&retire).await.expect(4);
    assert_eq!(dead.report()["refused"]["reason"], "Unchecked", "{dead:#?}");
    webhook.up().await.unwrap();
    assert_eq!(send(&client, "GET", &crd, None).await, untouched, "the CRD was changed");
    assert!(contents(&client, &widgets.path("v1", "")).await == before, "something was written");
}

async fn fields_that_another_version_lacks_are_found_out_without_a_webhook(lab: Lab) {
    let (cluster, client, widgets) = coloured(&lab, "paints", &["size"]).await;
    let before = contents(&client, &widgets.path("v1", "")).await;
    let restow = Restow::new(cluster);
    let report = check(&restow, &widgets, &[]).await.expect(3).report();
    let there = pair(&report, "v1", "v2");
    assert_eq!(
        (&there["objects"], &there["lost"]),
        (&json!(OBJECTS), &json!({"spec.color": 3})),
        "{report:#}"
    );
    assert_eq!(names(&there), [7, 57, 107].map(|index| format!("default/{}", name(index))));
    assert_eq!(pair(&report, "v2", "v1")["losing"], 0);
    // retire does not take that step either.
    let refused =
        restow.run(&["retire", &widgets.name(), "v1", "--yes", "--undeprecated-ok"]).await.expect(4);
    for index in [7, 57, 107] {
        let words = format!("default/{} would lose spec.color", name(index));
        assert!(refused.stderr.contains(&words), "{refused:#?}");
    }
    // Nor does convert: the file would lack the field.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("widget.json");
    for (index, code) in [(7, 1), (8, 0)] {
        let object = send(&client, "GET", &widgets.path("v1", &name(index)), None).await;
        std::fs::write(&file, object.to_string()).unwrap();
        let ran = restow.run(&["convert", "-f", file.to_str().unwrap(), "--to", "v2"]).await.expect(code);
        assert_eq!(
            ran.stderr.contains("API servers would drop what v2 lacks: spec.color"),
            code == 1,
            "{ran:#?}"
        );
    }
    assert!(contents(&client, &widgets.path("v1", "")).await == before, "something was written");
}

const RULES: &str = "apiVersion: restow.dev/v1alpha1
kind: ConversionRules
metadata: {name: widgets}
spec:
  group: GROUP
  kind: Widget
  hops:
  - older: v1
    newer: v2
    rules:
    - rename: {older: spec.color, newer: spec.colour}
";

async fn rules_are_checked_on_live_objects(lab: Lab) {
    let (cluster, client, widgets) = coloured(&lab, "tints", &["colour", "size"]).await;
    let restow = Restow::new(cluster);
    let before = contents(&client, &widgets.path("v1", "")).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, RULES.replace("GROUP", &widgets.group())).unwrap();
    let rules = ["--rules", file.to_str().unwrap()];
    let report = check(&restow, &widgets, &rules).await.expect(0).report();
    for (from, to) in [("v1", "v2"), ("v2", "v1")] {
        let pair = pair(&report, from, to);
        assert_eq!((&pair["objects"], &pair["losing"]), (&json!(OBJECTS), &json!(0)), "{report:#}");
    }
    // A loss that a rule accepts with a reason is shown, and is no failure.
    let rename = "rename: {older: spec.color, newer: spec.colour}";
    let lossy = RULES.replace(
        rename,
        "remove: {older: spec.color, lossy: nobody reads it}\n    - remove: {newer: spec.colour}",
    );
    std::fs::write(&file, lossy.replace("GROUP", &widgets.group())).unwrap();
    let report = check(&restow, &widgets, &rules).await.expect(0).report();
    assert_eq!(pair(&report, "v1", "v2")["accepted"], json!(["spec.color"]), "{report:#}");
    // Rules that do not fit the CRD are refused before an object is read.
    std::fs::write(&file, RULES.replace("GROUP", &widgets.group()).replace("spec.colour", "spec.hue"))
        .unwrap();
    let wrong = check(&restow, &widgets, &rules).await.expect(1);
    assert!(wrong.stderr.contains("the rules do not fit the CRD"), "{wrong:#?}");
    assert!(contents(&client, &widgets.path("v1", "")).await == before, "something was written");
}

async fn files_are_converted_as_the_cluster_does(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "papers" };
    widgets.define(&client).await;
    let restow = Restow::new(cluster);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("widget.yaml");
    let object = json!({"apiVersion": format!("{}/v1", widgets.group()), "kind": "Widget",
        "metadata": {"name": "a", "namespace": "default"}, "spec": {"size": 3}});
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    std::fs::write(&file, format!("{object}\n---\n{other}\n")).unwrap();
    let args = ["convert", "-f", file.to_str().unwrap(), "--to", "v2", "-o", "json"];
    // Without a webhook only the apiVersion differs.
    let ran = restow.run(&args).await.expect(0);
    let mut expected = object.clone();
    expected["apiVersion"] = format!("{}/v2", widgets.group()).into();
    assert_eq!(ran.report()["items"], json!([expected, other]));

    let webhook = ConversionWebhook::start(cluster, |object, version| {
        if version.ends_with("/v2") {
            object["spec"]["length"] = object["spec"]["size"].clone();
        }
    });
    let webhook = webhook.await.unwrap();
    let crd = format!("{CRDS}/{}", widgets.name());
    patch(&client, &crd, &json!({"spec": {"conversion": webhook.conversion()}})).await;
    expected["spec"]["length"] = 3.into();
    assert_eq!(restow.run(&args).await.expect(0).report()["items"][0], expected);
    let wrong = restow.run(&["convert", "-f", file.to_str().unwrap(), "--to", "v9"]).await.expect(2);
    assert!(wrong.stderr.contains("has no version v9"), "{wrong:#?}");

    // A Service cannot be called from here, and the hint says how; objects are not written for it.
    let service = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": null, "service": {"namespace": "default", "name": "converter", "path": "/convert"}}}}}});
    patch(&client, &crd, &service).await;
    let ran = restow.run(&args).await.expect(1);
    assert!(ran.stderr.contains("port-forward service/converter"), "{ran:#?}");
}
