//! Answers to a write that may not be about the object: none of them counts as done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::LOCATION;
use restow_lab::{Action, AdmissionWebhook, Cluster, ClusterSpec, ConversionWebhook, Seen, ServerSpec};
use serde_json::{Value, json};

use crate::support::{self, CRDS, Lab, Restow, Widgets, lab, name, patch, send, shared, try_send, wait};
use crate::traffic::{Traffic, number, status};

scenarios! {
    answers_of_a_load_balancer_prove_nothing,
    two_rejected_conversions_do_not_block_the_rest,
    a_field_manager_with_two_versions_keeps_all_fields,
    managed_fields_that_need_the_webhook_are_not_moved,
    ; real:
    // It needs admission webhooks.
    a_denial_with_any_code_is_not_counted_as_done,
    // It writes past the API server.
    an_object_deleted_during_the_write_counts_as_gone,
    // It needs writes into a namespace that is gone to fail.
    an_object_of_a_deleted_namespace_is_reported,
}

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// Objects stored as v1, of a definition that stores as v2 now.
async fn outdated(cluster: &Cluster, plural: &'static str, objects: usize) -> Widgets {
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural };
    widgets.define(&client).await;
    widgets.create(&client, objects).await;
    widgets.store_as(&client, "v2").await;
    widgets
}

/// How many objects are stored as v1, and as v2.
async fn stored(cluster: &Cluster, widgets: &Widgets) -> (usize, usize) {
    let stored = widgets.stored_as(cluster).await;
    let of = |version: &str| stored.get(&format!("{}/{version}", widgets.group())).copied().unwrap_or(0);
    (of("v1"), of("v2"))
}

/// Namespace, name, reason and message of the objects that were left, by name; nothing is verified and nothing pruned.
async fn left(cluster: &Cluster, widgets: &Widgets, report: &Value) -> Vec<[String; 4]> {
    assert_eq!(report["verified"], false, "{report:#}");
    let versions = widgets.stored_versions(&cluster.client(0).unwrap()).await;
    assert_eq!(versions, json!(["v1", "v2"]), "pruned too early");
    let mut left: Vec<_> = report["quarantined"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| {
            ["namespace", "name", "reason", "message"].map(|key| object[key].as_str().unwrap().to_owned())
        })
        .collect();
    left.sort_unstable();
    assert!(left.iter().all(|[.., message]| !message.is_empty()), "{left:#?}");
    left
}

fn names(left: &[[String; 4]]) -> Vec<String> {
    left.iter().map(|[_, name, ..]| name.clone()).collect()
}

/// An admission webhook's own code reaches the client unchanged, whatever it is.
async fn a_denial_with_any_code_is_not_counted_as_done(lab: Lab) {
    const OBJECTS: usize = 40;
    const CODES: [u16; 11] = [401, 404, 409, 410, 408, 418, 429, 500, 502, 503, 504];
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = outdated(cluster, "anycodes", OBJECTS).await;
    let code = |object: &str| {
        let number: usize = object.strip_prefix("w-")?.parse().ok()?;
        (number % 3 == 1).then(|| CODES.get(number / 3).copied()).flatten()
    };
    let webhook = AdmissionWebhook::start(cluster, move |object| {
        code(object).map(|code| (code, format!("no team owns {object}")))
    });
    let webhook = webhook.await.unwrap();
    let configuration = webhook.configuration("anycodes", &widgets.group(), widgets.plural);
    send(&client, "POST", CONFIGURATIONS, Some(&configuration)).await;
    wait("the webhook to deny", || async {
        let touch = json!({"metadata": {"annotations": {"touched": "true"}}});
        let path = widgets.path("v2", &format!("{}?dryRun=All", name(4)));
        try_send(&client, "PATCH", &path, Some(&touch)).await.is_err()
    })
    .await;

    let restow = Restow::new(cluster);
    let flags = ["--pace", "fast", "--page-size", "15", "--prune-stored-versions"];
    let report = restow.migrate(&widgets.name(), &flags).await.expect(3).resource();
    send(&client, "DELETE", &format!("{CONFIGURATIONS}/anycodes"), None).await;
    let denied: Vec<String> = (0..OBJECTS).map(name).filter(|name| code(name).is_some()).collect();
    let left = left(cluster, &widgets, &report).await;
    assert_eq!(names(&left), denied, "{report:#}");
    for [_, name, _, message] in &left {
        assert!(message.contains(&format!("no team owns {name}")), "{message}");
    }
    assert_eq!(report["rewritten"], OBJECTS - denied.len(), "{report:#}");
    assert_eq!(stored(cluster, &widgets).await, (denied.len(), OBJECTS - denied.len()));

    wait("the webhook to be gone", || async {
        let touch = json!({"metadata": {"annotations": {"touched": "true"}}});
        let path = widgets.path("v2", &format!("{}?dryRun=All", name(4)));
        try_send(&client, "PATCH", &path, Some(&touch)).await.is_ok()
    })
    .await;
    let report = restow.migrate(&widgets.name(), &["--retry-quarantined"]).await.expect(0).resource();
    assert_eq!(report["verified"], true, "{report:#}");
    assert_eq!(stored(cluster, &widgets).await, (0, OBJECTS));
}

/// Every write in a namespace that was force-finalised answers 404, and its objects are listed for ever.
async fn an_object_of_a_deleted_namespace_is_reported(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "orphans" };
    widgets.define(&client).await;
    widgets.create(&client, 5).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "finalised"}});
    send(&client, "POST", "/api/v1/namespaces", Some(&namespace)).await;
    let orphan = json!({
        "apiVersion": format!("{}/v1", widgets.group()), "kind": "Widget",
        "metadata": {"name": "orphan"}, "spec": {},
    });
    let path = format!("/apis/{}/v1/namespaces/finalised/{}", widgets.group(), widgets.plural);
    send(&client, "POST", &path, Some(&orphan)).await;
    widgets.store_as(&client, "v2").await;
    send(&client, "DELETE", "/api/v1/namespaces/finalised", None).await;
    let finalised = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "finalised"}, "spec": {"finalizers": []},
    });
    send(&client, "PUT", "/api/v1/namespaces/finalised/finalize", Some(&finalised)).await;
    wait("the namespace to be gone", || async {
        let touch = json!({"metadata": {"annotations": {"touched": "true"}}});
        let path = format!("{path}/orphan?dryRun=All");
        try_send(&client, "PATCH", &path, Some(&touch)).await.is_err()
    })
    .await;

    let restow = Restow::new(cluster);
    let report = restow.migrate(&widgets.name(), &["--prune-stored-versions"]).await.expect(3).resource();
    let left = left(cluster, &widgets, &report).await;
    assert_eq!(names(&left), ["orphan"], "{report:#}");
    assert_eq!(left[0][0], "finalised");
    assert!(left[0][3].contains("namespaces \"finalised\" not found"), "{left:?}");
    assert_eq!((&report["rewritten"], &report["gone"]), (&json!(5), &json!(0)), "{report:#}");
    assert_eq!(stored(cluster, &widgets).await, (1, 5));
}

/// Without a uid a write has no precondition; under another key than its name, it reaches another object or none.
// Only on a real kube-apiserver: it writes to etcd.
#[tokio::test]
async fn objects_without_a_uid_or_under_another_key_are_reported() {
    let Some(cluster) = shared() else { return };
    strays(cluster, "strays", false, "500").await;
    // A watch cache sorts objects by their names, and etcd, which gives the first page, by their keys.
    strays(cluster, "vagrants", false, "6").await;
    // Lists from etcd show also those that have a namesake.
    let assets = lab!();
    let server = ServerSpec::new().flag("watch-cache", "false");
    let uncached = support::cluster(&assets, ClusterSpec::new().server(0, server)).await;
    strays(&uncached, "strays", true, "6").await;
}

async fn strays(cluster: &Cluster, plural: &'static str, namesakes: bool, page: &str) {
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural };
    widgets.define(&client).await;
    widgets.create(&client, 20).await;
    let key = |object: &str| format!("{}default/{object}", widgets.prefix());
    let stored_at = async |object: &str| -> Value {
        serde_json::from_slice(&cluster.etcd().get(&key(object)).await.unwrap().unwrap()).unwrap()
    };
    let put = async |key: &str, object: &Value| {
        cluster.etcd().put(key, object.to_string().as_bytes()).await.unwrap();
    };
    let mut without_uid = stored_at(&name(3)).await;
    without_uid["metadata"].as_object_mut().unwrap().remove("uid");
    put(&key(&name(3)), &without_uid).await;
    // Before, behind and far from where their names would be.
    for (from, to) in [(7, "a-stray"), (11, "w-00011x"), (15, "z-stray")] {
        put(&key(to), &stored_at(&name(from)).await).await;
        cluster.etcd().delete(&key(&name(from))).await.unwrap();
    }
    let mut lost = vec![3, 7, 11, 15];
    if namesakes {
        let mut twin = stored_at(&name(18)).await;
        twin["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555".into();
        put(&key("twin"), &twin).await;
        put(&key("copy"), &stored_at(&name(19)).await).await;
        lost.extend([18, 19]);
    }
    widgets.store_as(&client, "v2").await;

    for list in ["chunked", "streaming"] {
        let restow = Restow::new(cluster);
        let flags = ["--list", list, "--page-size", page, "--prune-stored-versions"];
        let report = restow.migrate(&widgets.name(), &flags).await.expect(3).resource();
        let mut left = left(cluster, &widgets, &report).await;
        // One that is shown by its key and by its name is named twice.
        left.dedup_by(|one, other| one[1] == other[1]);
        assert_eq!(names(&left), lost.iter().copied().map(name).collect::<Vec<_>>(), "{report:#}");
        assert_eq!((&report["gone"], &report["conflicted"]), (&json!(0), &json!(0)), "{report:#}");
        assert_eq!(stored(cluster, &widgets).await, (lost.len(), 16));
    }
}

/// A load balancer in front of API servers answers in its own words for a moment, or for ever for one path.
async fn answers_of_a_load_balancer_prove_nothing(lab: Lab) {
    const OBJECTS: usize = 40;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "balancers", OBJECTS).await;
    let redirect = || match Action::reply(302, "") {
        Action::Reply(mut response) => {
            response.headers_mut().insert(LOCATION, "https://login.example.com/".parse().unwrap());
            Action::Reply(response)
        }
        other => other,
    };
    let page = "<html>default backend</html>";
    let rule = move |seen: &Seen, before: usize| match number(seen) {
        // For a moment.
        Some(2) if before < 2 => Action::reply(404, page),
        Some(4) if before < 2 => redirect(),
        Some(6) if before < 2 => status(401, "Unauthorized", "Unauthorized"),
        Some(8) if before < 2 => Action::reply(200, "{}"),
        Some(10) if before < 2 => Action::reply(200, page),
        Some(12) if before < 2 => status(409, "Conflict", "the quota has been modified"),
        Some(14) if before < 2 => status(404, "NotFound", "no such team"),
        Some(16) if before < 2 => status(403, "Forbidden", "the role is being replaced"),
        Some(18) if before < 2 => Action::reply(403, page),
        // For ever.
        Some(21) => Action::reply(404, page),
        Some(23) => redirect(),
        Some(25) => Action::reply(200, "{}"),
        Some(27) => Action::reply(200, r#"{"kind":"Status","metadata":{},"status":"Success"}"#),
        Some(29) => Action::reply(
            200,
            r#"{"kind":"PartialObjectMetadata","metadata":{"name":"w-00029","namespace":"default","uid":"another","resourceVersion":"9"}}"#,
        ),
        _ => Action::Forward,
    };
    let (recorder, _traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let flags = ["--pace", "fast", "--page-size", "20", "--prune-stored-versions"];
    let report = restow.migrate(&widgets.name(), &flags).await.expect(3).resource();
    let left = left(cluster, &widgets, &report).await;
    assert_eq!(names(&left), [21, 23, 25, 27, 29].map(name), "{report:#}");
    assert!(left[1][3].contains("302") && left[1][3].contains("https://login.example.com/"), "{left:#?}");
    assert_eq!(report["rewritten"], OBJECTS - 5, "{report:#}");
    assert_eq!(stored(cluster, &widgets).await, (5, OBJECTS - 5));
}

/// A terminating object whose last finalizer is taken away goes with the next write, which answers with it.
async fn an_object_deleted_during_the_write_counts_as_gone(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "vanishers" };
    widgets.define(&client).await;
    widgets.create(&client, 5).await;
    let key = format!("{}default/{}", widgets.prefix(), name(2));
    let mut object: Value =
        serde_json::from_slice(&cluster.store().get(&key).await.unwrap().unwrap()).unwrap();
    widgets.store_as(&client, "v2").await;
    // As a server leaves it that ends between taking the finalizer away and deleting.
    object["apiVersion"] = format!("{}/v2", widgets.group()).into();
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    cluster.etcd().put(&key, object.to_string().as_bytes()).await.unwrap();
    wait("the server to see it", || async {
        let seen = send(&client, "GET", &widgets.path("v2", &name(2)), None).await;
        seen["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    let report = Restow::new(cluster).migrate(&widgets.name(), &[]).await.expect(0).resource();
    assert!(cluster.store().get(&key).await.unwrap().is_none(), "it did not vanish");
    assert_eq!(
        (&report["gone"], &report["current"], &report["rewritten"]),
        (&json!(1), &json!(0), &json!(4)),
        "{report:#}"
    );
}

/// Made through v2 and stored as v1, so that the server needs the webhook for each of them just once.
async fn two_rejected_conversions_do_not_block_the_rest(lab: Lab) {
    const OBJECTS: usize = 20;
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "rejects" };
    let webhook = ConversionWebhook::start(cluster, |_, _| {}).await.unwrap();
    widgets.define(&client).await;
    let conversion = json!({"spec": {"conversion": webhook.conversion()}});
    patch(&client, &format!("{CRDS}/{}", widgets.name()), &conversion).await;
    wait("the webhook to be called", || async {
        let probe = json!({
            "apiVersion": format!("{}/v2", widgets.group()), "kind": "Widget", "metadata": {"name": "probe"},
        });
        try_send(&client, "POST", &widgets.path("v2", ""), Some(&probe)).await.ok();
        try_send(&client, "GET", &widgets.path("v2", ""), None).await.ok();
        webhook.calls() > 0
    })
    .await;
    wait("the probe to be deleted", || async {
        let gone = try_send(&client, "DELETE", &widgets.path("v2", "probe"), None).await;
        matches!(gone, Err(kube::Error::Api(status)) if status.code == 404)
    })
    .await;
    let object = |index| {
        json!({
            "apiVersion": format!("{}/v2", widgets.group()), "kind": "Widget",
            "metadata": {"name": name(index)}, "spec": {"size": index},
        })
    };
    for index in 0..OBJECTS {
        send(&client, "POST", &widgets.path("v2", ""), Some(&object(index))).await;
    }
    assert_eq!(stored(cluster, &widgets).await, (OBJECTS, 0));
    widgets.store_as(&client, "v2").await;
    // The last two, so that no other write is left to show that the webhook is well.
    let bad = [OBJECTS - 2, OBJECTS - 1].map(name);
    let denied = bad.clone();
    webhook.deny(move |name, version| {
        (version.ends_with("/v2") && denied.iter().any(|bad| bad == name))
            .then(|| format!("{name} is malformed"))
    });
    let restow = Restow::new(cluster);
    let flags = ["--pace", "fast", "--prune-stored-versions"];
    let began = std::time::Instant::now();
    let report = restow.migrate(&widgets.name(), &flags).await.expect(3).resource();
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
    let left = left(cluster, &widgets, &report).await;
    assert_eq!(names(&left), bad, "{report:#}");
    assert!(left.iter().all(|[_, name, _, message]| message.contains(&format!("{name} is malformed"))));
    assert_eq!(stored(cluster, &widgets).await, (2, OBJECTS - 2));
    webhook.mend();
    restow.migrate(&widgets.name(), &["--retry-quarantined"]).await.expect(0);
    assert_eq!(stored(cluster, &widgets).await, (0, OBJECTS));

    // With v1 not served any more no other object shows that the webhook is well. A denial with 503 is not its fault.
    widgets.set_versions(&client, &[("v1", false, false), ("v2", true, true)]).await;
    let rule = |seen: &Seen, _: usize| match number(seen) {
        Some(3) => status(503, "ServiceUnavailable", "the quota cannot be looked up"),
        _ => Action::Forward,
    };
    let (recorder, _traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let report = restow.migrate(&widgets.name(), &["--pace", "fast"]).await.expect(3).resource();
    assert_eq!(report["quarantined"].as_array().unwrap().len(), 1, "{report:#}");
    assert_eq!(report["quarantined"][0]["name"], name(3), "{report:#}");
}

/// The fields each manager owns by each operation, whatever the version they are recorded through.
fn owned(object: &Value) -> BTreeMap<(String, String), Vec<String>> {
    fn walk(fields: &Value, path: &str, leaves: &mut Vec<String>) {
        let fields = fields.as_object().unwrap();
        if fields.is_empty() {
            leaves.push(path.to_owned());
        }
        for (key, below) in fields {
            if key == "." {
                leaves.push(path.to_owned());
            } else {
                walk(below, &format!("{path}/{key}"), leaves);
            }
        }
    }
    let mut owned: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for entry in object["metadata"]["managedFields"].as_array().unwrap() {
        let of = |key: &str| entry[key].as_str().unwrap().to_owned();
        walk(&entry["fieldsV1"], "", owned.entry((of("manager"), of("operation"))).or_default());
    }
    for fields in owned.values_mut() {
        fields.sort_unstable();
        fields.dedup();
    }
    owned
}

/// Every object has one manager with entries of both versions.
async fn through_both(client: &kube::Client, widgets: &Widgets, objects: usize) {
    for index in 0..objects {
        for (version, spec) in [("v1", json!({"old": {"a": 1}})), ("v2", json!({"new": 2, "old": {"b": 2}}))]
        {
            let path = format!("{}?fieldManager=team", widgets.path(version, &name(index)));
            patch(client, &path, &json!({"spec": spec})).await;
        }
    }
}

async fn a_field_manager_with_two_versions_keeps_all_fields(lab: Lab) {
    const OBJECTS: usize = 4;
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "unions" };
    widgets.define(&client).await;
    widgets.create(&client, OBJECTS).await;
    through_both(&client, &widgets, OBJECTS).await;
    widgets.set_versions(&client, &[("v1", false, false), ("v2", true, true)]).await;
    let read = async |index| send(&client, "GET", &widgets.path("v2", &name(index)), None).await;
    let before = read(1).await;
    assert_eq!(before["metadata"]["managedFields"].as_array().unwrap().len(), 3, "{before:#}");
    let flags = ["--repair-managed-fields", "--prune-stored-versions"];
    let report = Restow::new(cluster).migrate(&widgets.name(), &flags).await.expect(0).resource();
    assert_eq!(report["verified"], true, "{report:#}");
    for index in 0..OBJECTS {
        let after = read(index).await;
        let entries = after["metadata"]["managedFields"].as_array().unwrap();
        assert!(entries.iter().all(|entry| entry["apiVersion"].as_str().unwrap().ends_with("/v2")));
        if index == 1 {
            assert_eq!(owned(&after), owned(&before), "{after:#}");
        }
    }
    // A user's write after v1 was dropped keeps them too.
    widgets.set_versions(&client, &[("v2", true, true)]).await;
    let after = read(1).await;
    patch(&client, &widgets.path("v2", &name(1)), &json!({"metadata": {"labels": {"by": "user"}}})).await;
    let mut owners = owned(&read(1).await);
    owners.retain(|(manager, _), _| manager != "unknown");
    let mut expected = owned(&after);
    expected.retain(|(manager, _), _| manager != "unknown");
    assert_eq!(owners, expected);
}

/// Where a webhook converts, the paths of one version may mean nothing in another: ownership is not relabelled.
async fn managed_fields_that_need_the_webhook_are_not_moved(lab: Lab) {
    const OBJECTS: usize = 3;
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let called = Arc::clone(&calls);
    let webhook = ConversionWebhook::start(cluster, move |object, version| {
        called.fetch_add(1, Ordering::SeqCst);
        let (from, to) = if version.ends_with("/v2") { ("size", "length") } else { ("length", "size") };
        if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
            object["spec"][to] = value;
        }
    });
    let webhook = webhook.await.unwrap();
    let widgets = Widgets { plural: "paths" };
    widgets.define(&client).await;
    widgets.create(&client, OBJECTS).await;
    let conversion = json!({"spec": {"conversion": webhook.conversion()}});
    patch(&client, &format!("{CRDS}/{}", widgets.name()), &conversion).await;
    wait("the webhook to convert", || async {
        let object = try_send(&client, "GET", &widgets.path("v2", &name(0)), None).await;
        object.is_ok_and(|object| object["spec"]["length"] == 0)
    })
    .await;
    // Objects that restow itself has applied are rewritten too.
    let applied = json!({
        "apiVersion": format!("{}/v1", widgets.group()), "kind": "Widget",
        "metadata": {"name": name(1), "labels": {"applied-by": "restow"}},
    });
    let apply = http::Request::patch(format!("{}?fieldManager=restow", widgets.path("v1", &name(1))))
        .header("Content-Type", "application/apply-patch+yaml")
        .body(applied.to_string().into_bytes());
    client.request::<Value>(apply.unwrap()).await.unwrap();
    widgets.set_versions(&client, &[("v1", false, false), ("v2", true, true)]).await;
    let read = async |index| send(&client, "GET", &widgets.path("v2", &name(index)), None).await;
    let before = read(1).await["metadata"]["managedFields"].clone();
    let restow = Restow::new(cluster);
    let flags = ["--repair-managed-fields", "--prune-stored-versions"];
    let report = restow.migrate(&widgets.name(), &flags).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(OBJECTS), &json!(true)), "{report:#}");
    assert_eq!(read(1).await["metadata"]["managedFields"], before);

    // Dropped too early: the next write would wipe them, and they cannot be moved.
    widgets.set_versions(&client, &[("v2", true, true)]).await;
    let report = restow.migrate(&widgets.name(), &flags).await.expect(3).resource();
    assert_eq!(report["verified"], false, "{report:#}");
    let left = report["quarantined"].as_array().unwrap();
    let reasons: Vec<_> = left.iter().map(|object| (&object["name"], &object["reason"])).collect();
    assert_eq!(reasons.len(), OBJECTS, "{report:#}");
    assert!(reasons.iter().all(|(_, reason)| *reason == "StaleManagedFields"), "{report:#}");
    assert_eq!(read(1).await["metadata"]["managedFields"], before);
}
