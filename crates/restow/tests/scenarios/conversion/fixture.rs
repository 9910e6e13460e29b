//! Kinds with two versions, webhooks and rules between them, and Conversions of them.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::CustomResourceExt as _;
use restow_convert::rules::ConversionRules;
use restow_lab::{Cluster, ConversionWebhook, suite};
use serde_json::{Value, json};

use crate::controller::{self, is};
use crate::support::{CRDS, Ran, Restow, Widgets, create_all, name, patch, send, try_send, wait};

/// The path of all Conversions.
pub(super) const CONVERSIONS: &str = "/apis/restow.dev/v1alpha1/conversions";
/// The path of all ConversionRules.
pub(super) const RULES: &str = "/apis/restow.dev/v1alpha1/conversionrules";
/// The controllers without the trigger.
pub(super) const WITHOUT_TRIGGER: &str = "migrator,pruner,conversion";

/// As admin at the first server of a cluster with all definitions installed.
pub(super) async fn prepared(cluster: &Cluster) -> (kube::Client, Restow) {
    let (client, restow) = controller::prepared(cluster).await;
    send(&client, "POST", CRDS, Some(&serde_json::to_value(restow_api::conversion_crd()).unwrap())).await;
    wait("Conversions to be served", || async { try_send(&client, "GET", CONVERSIONS, None).await.is_ok() })
        .await;
    (client, restow)
}

/// A kind with two versions: v1 has `size` and `colour`, v2 has `length` instead of `size`, and `colour` if so wanted.
pub(super) fn crd(widgets: &Widgets, v2: Value, conversion: Option<Value>) -> Value {
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
pub(super) fn renamed() -> Value {
    json!({"length": {"type": "integer"}, "colour": {"type": "string"}, "padding": {"type": "string"}})
}

/// The schema of v2 that is like v1.
pub(super) fn alike() -> Value {
    json!({"size": {"type": "integer"}, "colour": {"type": "string"}, "padding": {"type": "string"}})
}

/// A webhook that calls `size` `length` in v2, and does to `colour` what is asked for.
pub(super) async fn webhook(cluster: &Cluster, keeps_colour: bool) -> ConversionWebhook {
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

/// Defines a kind that survives: a webhook renames a field. Returns what an object's number is called in v1 and v2.
pub(super) async fn define_convertible(
    cluster: &Cluster,
    widgets: &Widgets,
) -> (ConversionWebhook, [&'static str; 2]) {
    let client = cluster.client(0).unwrap();
    let webhook = webhook(cluster, true).await;
    define(&client, widgets, &crd(widgets, renamed(), Some(webhook.conversion()))).await;
    (webhook, ["size", "length"])
}

pub(super) async fn define(client: &kube::Client, widgets: &Widgets, crd: &Value) {
    send(client, "POST", CRDS, Some(crd)).await;
    wait("the definition to be served", || async {
        try_send(client, "GET", &widgets.path("v1", ""), None).await.is_ok()
            && try_send(client, "GET", &widgets.path("v2", ""), None).await.is_ok()
    })
    .await;
}

/// Makes objects; those of these numbers have a colour.
pub(super) async fn create(client: &kube::Client, widgets: &Widgets, count: usize, coloured: &[usize]) {
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

pub(super) fn conversion(name: &str, widgets: &Widgets, (old, new): (&str, &str), more: Value) -> Value {
    let mut spec = json!({"group": widgets.group(), "kind": "Widget", "oldVersion": old, "newVersion": new});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "restow.dev/v1alpha1", "kind": "Conversion", "metadata": {"name": name}, "spec": spec})
}

pub(super) async fn read(client: &kube::Client, name: &str) -> Value {
    send(client, "GET", &format!("{CONVERSIONS}/{name}"), None).await
}

/// Waits until a condition of a Conversion is True.
pub(super) async fn wait_for(client: &kube::Client, name: &str, condition: &str) -> Value {
    suite::wait(Duration::from_secs(600), &format!("{name} to be {condition}"), || async {
        let now = read(client, name).await;
        let other = if condition == "Failed" { "Succeeded" } else { "Failed" };
        assert!(!is(&now, other), "{now:#}");
        is(&now, condition)
    })
    .await;
    read(client, name).await
}

pub(super) fn reason(object: &Value, condition: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|one| one["type"] == condition);
    found.map_or_else(String::new, |found| found["reason"].as_str().unwrap_or_default().to_owned())
}

/// How many objects are stored in each version, and whether each has its number under the name of its version.
pub(super) async fn stored(
    cluster: &Cluster,
    widgets: &Widgets,
    names: [&str; 2],
) -> BTreeMap<String, usize> {
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

pub(super) async fn definition(client: &kube::Client, widgets: &Widgets) -> Value {
    send(client, "GET", &format!("{CRDS}/{}", widgets.name()), None).await
}

/// Writes a Conversion to a file, and runs `restow convert run`.
pub(super) async fn run_once(restow: &Restow, object: &Value, more: &[&str]) -> Ran {
    let file = restow.state.path().join(format!("{}.json", object["metadata"]["name"].as_str().unwrap()));
    std::fs::write(&file, object.to_string()).unwrap();
    let mut args = vec!["convert", "run", "-f", file.to_str().unwrap(), "--pace", "fast"];
    args.extend(more);
    restow.run(&args).await
}

/// Waits until this many objects were rewritten.
pub(super) async fn rewritten(client: &kube::Client, name: &str, objects: u64) {
    wait(&format!("{objects} objects to be rewritten"), || async {
        read(client, name).await["status"]["progress"]["rewritten"].as_u64() >= Some(objects)
    })
    .await;
}

/// Rules that call `size` `length` in v2.
pub(super) fn rules(widgets: &Widgets) -> Value {
    json!({
        "apiVersion": "restow.dev/v1alpha1", "kind": "ConversionRules", "metadata": {"name": widgets.plural},
        "spec": {
            "group": widgets.group(), "kind": "Widget",
            "hops": [{"older": "v1", "newer": "v2", "rules": [{"rename": {"older": "spec.size", "newer": "spec.length"}}]}],
        },
    })
}

/// Defines ConversionRules.
pub(super) async fn define_rules(client: &kube::Client) {
    let crd = serde_json::to_value(ConversionRules::crd()).unwrap();
    send(client, "POST", CRDS, Some(&crd)).await;
    wait("rules to be served", || async { try_send(client, "GET", RULES, None).await.is_ok() }).await;
}

/// Replaces the versions of a definition, as somebody else would.
pub(super) async fn set_versions(client: &kube::Client, widgets: &Widgets, versions: &Value) {
    patch(client, &format!("{CRDS}/{}", widgets.name()), &json!({"spec": {"versions": versions}})).await;
}

/// The content of one object as it is stored.
pub(super) async fn stored_object(cluster: &Cluster, widgets: &Widgets, index: usize) -> Value {
    let mut found = Value::Null;
    let take = |_: &str, bytes: &[u8]| {
        let object: Value = serde_json::from_slice(bytes).unwrap();
        if object["metadata"]["name"] == name(index) {
            found = object;
        }
    };
    cluster.store().for_each(&widgets.prefix(), take).await.unwrap();
    found
}
