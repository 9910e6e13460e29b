//! Server-side apply: creating, updating, and what is refused.

use serde_json::{Value, json};

use crate::definition::{define, widget};
use crate::subject::{ApiRequest, Place, Subject};

scenarios![
    an_apply_creates_and_then_updates,
    an_apply_that_changes_nothing_writes_nothing,
    options_that_do_not_fit_are_refused,
    configurations_that_do_not_fit_are_refused,
    an_apply_has_preconditions,
    an_apply_can_be_a_dry_run,
    the_status_is_applied_through_its_subresource,
    configurations_may_be_yaml,
    fields_from_before_the_first_apply_are_kept,
    a_creator_without_permission_is_refused,
    kubectls_manager_takes_over_what_it_applied_on_the_client,
];

/// Widgets with lists and maps of every kind.
pub(crate) fn structured(definition: &mut Value) {
    let keyed = json!({"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}});
    let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    *spec = json!({"type": "object", "properties": {
        "size": {"type": "integer"},
        "text": {"type": "string"},
        "flag": {"type": "boolean"},
        "defaulted": {"type": "string", "default": "d"},
        "maybe": {"type": "string", "nullable": true},
        "port": {"x-kubernetes-int-or-string": true},
        "list": {"type": "array", "items": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": keyed},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "inner": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"},
            "deep": {"type": "object", "properties": {"c": {"type": "integer"}}}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }});
}

/// Applies a configuration.
pub(crate) async fn apply(place: &Place<'_>, path: &str, config: &Value) -> crate::answer::Answer {
    place.send(ApiRequest::new("APPLY", path).json(config)).await
}

/// The managers of an object with their operations and subresources, and the fields of each.
pub(crate) fn managed(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let one = |entry: &Value| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let name = format!("{} {} {}", text("manager"), text("operation"), text("subresource"));
        (name.trim_end().to_owned(), entry["fieldsV1"].clone())
    };
    let mut all: Vec<_> = entries.iter().map(one).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

async fn an_apply_creates_and_then_updates(subject: &Subject) {
    let place = subject.namespace("apply-creates").await;
    let config = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"l": "1"}}, "data": data});
    let made = apply(&place, "configmaps/a?fieldManager=one", &config(json!({"k": "v"}))).await;
    assert_eq!(made.code(), 201, "{}", made.line());
    let fields = json!({"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:l": {}}}});
    assert_eq!(managed(&made.body), [("one Apply".to_owned(), fields)]);
    assert_eq!(made["metadata"]["managedFields"][0]["apiVersion"], "v1");
    let changed = apply(&place, "configmaps/a?fieldManager=one", &config(json!({"n": "w"}))).await.ok();
    assert_eq!((changed.code(), &changed["data"]), (200, &json!({"n": "w"})));
    assert_eq!(changed.uid(), made.uid());
    assert_ne!(changed.resource_version(), made.resource_version());
    // What others own stays.
    place.merge("configmaps/a?fieldManager=two", json!({"data": {"other": "x"}})).await.ok();
    let changed = apply(&place, "configmaps/a?fieldManager=one", &config(json!({}))).await.ok();
    assert_eq!(changed["data"], json!({"other": "x"}));
}

async fn an_apply_that_changes_nothing_writes_nothing(subject: &Subject) {
    let group = "applynoop.example";
    let place = define(subject, group, structured).await;
    let config = widget(group, "a", json!({"size": 1, "keyed": [{"port": 80}], "set": ["a", "b"]}));
    let made = apply(&place, "widgets/a?fieldManager=one", &config).await.ok();
    assert_eq!(made["spec"]["keyed"][0]["protocol"], "TCP");
    for _ in 0..2 {
        let again = apply(&place, "widgets/a?fieldManager=one", &config).await.ok();
        assert_eq!((again.code(), &again.body), (200, &made.body));
    }
    // Another manager of the same values changes managedFields only.
    let shared =
        apply(&place, "widgets/a?fieldManager=two", &widget(group, "a", json!({"size": 1}))).await.ok();
    assert_eq!((&shared["spec"], shared.generation()), (&made["spec"], made.generation()));
    assert_eq!(managed(&shared.body).len(), 2);
    assert_ne!(shared.resource_version(), made.resource_version());
    let again =
        apply(&place, "widgets/a?fieldManager=two", &widget(group, "a", json!({"size": 1}))).await.ok();
    assert_eq!(again.body, shared.body);
}

async fn options_that_do_not_fit_are_refused(subject: &Subject) {
    let place = subject.namespace("apply-options").await;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let long = format!("configmaps/a?fieldManager={}", "x".repeat(129));
    place.make(&["b"]).await;
    place
        .table(&[
            ("APPLY", "configmaps/a", config.clone(), r#"422 Invalid: PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#),
            ("APPLY", &long, config.clone(), "422 Invalid: PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long*"),
            ("MERGE", "configmaps/b?force=true", json!({}), r#"422 Invalid: PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch"#),
            ("APPLY", "configmaps/a?fieldManager=one&force=true", config, "201"),
        ])
        .await;
    let cbor = ApiRequest::new("APPLY", "configmaps/a?fieldManager=one")
        .header("content-type", "application/apply-patch+cbor");
    assert_eq!(place.send(cbor.body("x")).await.reason(), "415 UnsupportedMediaType");
}

async fn configurations_that_do_not_fit_are_refused(subject: &Subject) {
    let group = "applyrefused.example";
    let place = define(subject, group, structured).await;
    let path = "widgets/a?fieldManager=one";
    let spec = |spec: Value| widget(group, "a", spec);
    let mut other_name = spec(json!({}));
    other_name["metadata"]["name"] = json!("b");
    let mut no_name = spec(json!({}));
    no_name["metadata"] = json!({"generateName": "a-"});
    let mut namespace = spec(json!({}));
    namespace["metadata"]["namespace"] = json!("elsewhere");
    let mut managed = spec(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    let mut kind = spec(json!({}));
    kind["kind"] = json!("Gadget");
    let what = "applyrefused-example/a; applyrefused.example/v1, Kind=Widget";
    let typed = |error: &str| {
        format!(
            "500 -: failed to create typed patch object (/a; applyrefused.example/v1, Kind=Widget): {error}"
        )
    };
    let in_namespace = |mut config: Value| {
        config["metadata"]["namespace"] = json!("applyrefused-example");
        config
    };
    place
        .table(&[
            ("APPLY", path, other_name, "400 BadRequest: the name of the object (b) does not match the name on the URL (a)"),
            ("APPLY", path, no_name, "400 BadRequest: the name of the object (a based on URL) was undeterminable: name must be provided"),
            ("APPLY", path, namespace, "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request"),
            ("APPLY", path, managed, "400 BadRequest: metadata.managedFields must be nil"),
            ("APPLY", path, kind, "400 BadRequest: invalid object type: applyrefused.example/v1, Kind=Gadget"),
            ("APPLY", path, json!({"kind": "Widget"}), "400 BadRequest: invalid object type: /, Kind=Widget"),
            ("APPLY", path, json!([]), "400 BadRequest: error decoding YAML: *"),
            ("APPLY", path, spec(json!({"unknown": 1})), &typed(".spec.unknown: field not declared in schema")),
            ("APPLY", path, in_namespace(spec(json!({"unknown": 1}))), &format!("500 -: failed to create typed patch object ({what}): .spec.unknown: field not declared in schema")),
            ("APPLY", path, spec(json!({"set": ["a", "a"]})), &typed(".spec.set: duplicate entries for key [=\"a\"]")),
            ("APPLY", path, spec(json!({"keyed": [{"port": 1}, {"port": 1, "protocol": "TCP"}]})), &typed(".spec.keyed: duplicate entries for key [port=1,protocol=\"TCP\"]")),
            ("APPLY", path, spec(json!({"size": "x"})), &typed(".spec.size: expected numeric (int or float), got string")),
            ("APPLY", path, spec(json!({"list": {}})), "500 -: failed to create typed patch object*"),
            ("APPLY", path, spec(json!({"keyed": [{"name": "x"}]})), "422 Invalid: *"),
            ("APPLY", path, spec(json!({"size": 1})), "201"),
            ("APPLY", path, spec(json!({"size": 1.5})), "422 Invalid: *"),
            ("APPLY", "widgets/b/status?fieldManager=one", json!({"apiVersion": "applyrefused.example/v1", "kind": "Widget", "metadata": {"name": "b"}}), "404 NotFound: widgets.applyrefused.example \"b\" not found"),
        ])
        .await;
}

async fn an_apply_has_preconditions(subject: &Subject) {
    let place = subject.namespace("apply-precondition").await;
    let config = |metadata: Value, value: &str| {
        let mut config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": value}});
        config["metadata"]["name"] = json!("a");
        config
    };
    let path = "configmaps/a?fieldManager=one";
    let uid = "11111111-1111-1111-1111-111111111111";
    place
        .table(&[
            ("APPLY", path, config(json!({"uid": uid}), "1"), "409 Conflict: Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid 11111111-1111-1111-1111-111111111111, and no existing object was found"),
            // Of an object that is created, the resourceVersion is not checked.
            ("APPLY", path, config(json!({"resourceVersion": "1"}), "1"), "201"),
        ])
        .await;
    let made = apply(&place, path, &config(json!({}), "1")).await.ok();
    place
        .table(&[
            ("APPLY", path, config(json!({"uid": uid}), "2"), "422 Invalid: *"),
            ("APPLY", path, config(json!({"resourceVersion": "1"}), "2"), "409 Conflict: Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"),
            ("APPLY", path, config(json!({"uid": made.uid(), "resourceVersion": made.resource_version()}), "2"), "200"),
        ])
        .await;
}

async fn an_apply_can_be_a_dry_run(subject: &Subject) {
    let place = subject.namespace("apply-dry").await;
    let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
    let made = apply(&place, "configmaps/a?fieldManager=one&dryRun=All", &config("1")).await;
    assert_eq!(made.code(), 201);
    assert_eq!(place.get("configmaps/a").await.code(), 404);
    let made = apply(&place, "configmaps/a?fieldManager=one", &config("1")).await.ok();
    let tried = apply(&place, "configmaps/a?fieldManager=one&dryRun=All", &config("2")).await.ok();
    assert_eq!((&tried["data"]["k"], tried.resource_version()), (&json!("2"), made.resource_version()));
    assert_eq!(place.get("configmaps/a").await.ok().body, made.body);
}

async fn the_status_is_applied_through_its_subresource(subject: &Subject) {
    let group = "applystatus.example";
    let place = define(subject, group, structured).await;
    let mut config = widget(group, "a", json!({"size": 1}));
    config["status"] = json!({"phase": "ignored"});
    let made = apply(&place, "widgets/a?fieldManager=one", &config).await.ok();
    assert_eq!(made.body.get("status"), None);
    assert_eq!(managed(&made.body), [("one Apply".to_owned(), json!({"f:spec": {"f:size": {}}}))]);
    let mut status = widget(group, "a", json!({"size": 9}));
    status["metadata"]["labels"] = json!({"l": "1"});
    status["status"] = json!({"phase": "done"});
    let written = apply(&place, "widgets/a/status?fieldManager=one", &status).await.ok();
    assert_eq!((&written["status"]["phase"], &written["spec"]["size"]), (&json!("done"), &json!(1)));
    let expected = [
        ("one Apply".to_owned(), json!({"f:spec": {"f:size": {}}})),
        ("one Apply status".to_owned(), json!({"f:status": {"f:phase": {}}})),
    ];
    assert_eq!(managed(&written.body), expected);
    let error = apply(&place, "widgets/a/status?fieldManager=two", &{
        let mut other = status.clone();
        other["status"]["phase"] = json!("other");
        other
    })
    .await;
    let message = "409 Conflict: Apply failed with 1 conflict: conflict with \"one\" with subresource \"status\": .status.phase";
    assert_eq!(error.line(), message);
}

async fn configurations_may_be_yaml(subject: &Subject) {
    let place = subject.namespace("apply-yaml").await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: |\n    lines\n";
    let send = |path: &'static str, body: &'static str| place.send(ApiRequest::new("APPLY", path).body(body));
    let made = send("configmaps/a?fieldManager=one", yaml).await.ok();
    assert_eq!(made["data"]["k"], "lines\n");
    let twice = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: a\n  k: b\n";
    let strict = send("configmaps/a?fieldManager=one&fieldValidation=Strict", twice).await;
    assert!(strict.line().starts_with("400 BadRequest: error strict decoding YAML: "), "{}", strict.line());
    let warned = send("configmaps/a?fieldManager=one&fieldValidation=Warn", twice).await.ok();
    assert_eq!(warned["data"]["k"], "b");
    assert!(warned.header("warning").starts_with("299 - \""), "{}", warned.header("warning"));
    let ignored = send("configmaps/a?fieldManager=one&fieldValidation=Ignore", twice).await.ok();
    assert_eq!(ignored.header("warning"), "");
    let twice = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"a","k":"c"}}"#;
    let strict = send("configmaps/a?fieldManager=one&fieldValidation=Strict", twice).await;
    assert!(strict.line().starts_with("400 BadRequest: error strict decoding YAML: "), "{}", strict.line());
    let unread = send("configmaps/a?fieldManager=one", "a: [").await;
    assert!(unread.line().starts_with("400 BadRequest: error decoding YAML: "), "{}", unread.line());
}

async fn fields_from_before_the_first_apply_are_kept(subject: &Subject) {
    let place = subject.namespace("apply-before").await;
    let body = json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "data": {"k": "v"}});
    place.post("configmaps?fieldManager=maker", body).await.ok();
    place.merge("configmaps/a", json!({"metadata": {"managedFields": [{}]}})).await.ok();
    let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value, "n": "w"}});
    let error = apply(&place, "configmaps/a?fieldManager=one", &config("x")).await;
    assert_eq!(
        error.line(),
        "409 Conflict: Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.k"
    );
    let applied = apply(&place, "configmaps/a?fieldManager=one", &config("v")).await.ok();
    let expected = [
        (
            "before-first-apply Update".to_owned(),
            json!({"f:data": {".": {}, "f:k": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}}),
        ),
        ("one Apply".to_owned(), json!({"f:data": {"f:k": {}, "f:n": {}}})),
    ];
    assert_eq!(managed(&applied.body), expected);
}

async fn a_creator_without_permission_is_refused(subject: &Subject) {
    let place = subject.namespace("apply-permission").await;
    place.make(&["b"]).await;
    let rbac = place.of("rbac.authorization.k8s.io/v1");
    let role = json!({"metadata": {"name": "patcher"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]});
    rbac.post("roles", role).await.ok();
    let binding = json!({"metadata": {"name": "patcher"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "patcher"},
        "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}]});
    rbac.post("rolebindings", binding).await.ok();
    let config = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
    let send = |name: &str| {
        let call =
            ApiRequest::new("APPLY", &format!("configmaps/{name}?fieldManager=one")).json(&config(name));
        place.send(call.by(crate::subject::Caller::Alice))
    };
    crate::definition::wait("the role to count", || async { send("b").await.code() == 200 }).await;
    assert_eq!(send("a").await.reason(), "403 Forbidden");
}

async fn kubectls_manager_takes_over_what_it_applied_on_the_client(subject: &Subject) {
    let place = subject.namespace("apply-client").await;
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
    let mut body = config("1");
    body["metadata"]["annotations"] = json!({annotation: config("1").to_string()});
    place.post("configmaps?fieldManager=kubectl-client-side-apply", body).await.ok();
    let other = apply(&place, "configmaps/a?fieldManager=other", &config("2")).await;
    assert_eq!(other.reason(), "409 Conflict");
    let taken = apply(&place, "configmaps/a?fieldManager=kubectl", &config("2")).await.ok();
    assert_eq!(taken["data"]["k"], "2");
    let last: Value =
        serde_json::from_str(taken["metadata"]["annotations"][annotation].as_str().unwrap()).unwrap();
    assert_eq!(last["data"]["k"], "2");
    let expected = [
        ("kubectl Apply".to_owned(), json!({"f:data": {"f:k": {}}})),
        (
            "kubectl-client-side-apply Update".to_owned(),
            json!({"f:data": {}, "f:metadata": {"f:annotations": {".": {}, format!("f:{annotation}"): {}}}}),
        ),
    ];
    assert_eq!(managed(&taken.body), expected);
}
