//! Tables of custom and of built-in resources.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::arbitrary::any_json;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn custom(name: &str, kind: &str, json_path: &str) -> Column {
    Column { json_path: json_path.into(), ..super::column::column(name, kind, "", 0, "") }
}

#[test]
fn a_custom_resource_has_its_printer_columns() {
    let columns = Columns::custom(&[
        custom("Size", "integer", ".spec.size"),
        custom("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
        custom("Made", "date", ".metadata.creationTimestamp"),
        custom("Half", "number", ".spec.half"),
        custom("On", "boolean", ".spec.on"),
        custom("All", "string", ".spec.list"),
        custom("Bad", "date", ".spec.size2"),
        custom("None", "string", ".spec.none"),
    ]);
    let object = json!({"metadata": {"name": "a", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"size": 3.7, "half": 1, "on": true, "list": [1, "a"], "size2": "x"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let table = columns.table("v1", metadata_of_one(&object), &[object], IncludeObject::Metadata, now());
    assert_eq!(table["metadata"], json!({"resourceVersion": "5"}));
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["a", 3, "True", "60m", 1.0, true, "[1,\"a\"]", "<invalid>", null])
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["columnDefinitions"][0]["format"], "name");
    assert_eq!(
        table["columnDefinitions"][1]["description"],
        "Custom resource definition column (in JSONPath format): .spec.size"
    );
}

#[test]
fn without_printer_columns_the_age_is_shown() {
    let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:59:00Z"}});
    let table = Columns::custom(&[]).table(
        "v1",
        json!({}),
        std::slice::from_ref(&object),
        IncludeObject::None,
        now(),
    );
    assert_eq!(table["rows"], json!([{"cells": ["a", "60s"], "object": null}]));
    let row = Columns::custom(&[]).table_row("v1", &object, IncludeObject::Object, now());
    assert_eq!(row["object"], object);
}

#[test]
fn built_in_resources_have_their_columns() {
    let metadata = json!({"name": "a", "creationTimestamp": "2026-01-01T00:59:00Z"});
    let cases = [
        ("", "namespaces", json!({"status": {"phase": "Active"}}), json!(["a", "Active", "60s"])),
        ("", "configmaps", json!({"data": {"a": "b"}, "binaryData": {"c": "d"}}), json!(["a", 2, "60s"])),
        ("", "secrets", json!({"type": "Opaque", "data": {"a": "b"}}), json!(["a", "Opaque", 1, "60s"])),
        ("coordination.k8s.io", "leases", json!({"spec": {"holderIdentity": "h"}}), json!(["a", "h", "60s"])),
        ("rbac.authorization.k8s.io", "roles", json!({}), json!(["a", "2026-01-01T00:59:00Z"])),
        (
            "apps",
            "deployments",
            json!({"spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}},
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}, "status": {"readyReplicas": 1}}),
            json!(["a", "1/2", 0, 0, "60s", "c", "i", "a=b"]),
        ),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
                {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]}),
            json!(["a", "Role/r", "60s", "u", "", "n/s"]),
        ),
        (
            "",
            "pods",
            json!({"spec": {"containers": [{}, {}], "nodeName": "n"}, "status": {"phase": "Running",
                "containerStatuses": [{"ready": true, "restartCount": 2, "state": {"running": {}},
                    "lastState": {"terminated": {"finishedAt": "2026-01-01T00:58:00Z"}}},
                    {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
            json!(["a", "1/2", "CrashLoopBackOff", "2 (2m ago)", "60s", "<none>", "n", "<none>", "<none>"]),
        ),
        (
            "",
            "events",
            json!({"type": "Normal", "reason": "R", "message": " m ", "involvedObject": {"kind": "Pod", "name": "p"},
                "source": {"component": "c"}, "lastTimestamp": "2026-01-01T00:59:55Z"}),
            json!(["5s", "Normal", "R", "pod/p", "", "c", "m", "<unknown>", 1, "a"]),
        ),
    ];
    for (group, resource, mut object, cells) in cases {
        object["metadata"] = metadata.clone();
        let columns = Columns::built_in(group, resource);
        let table = columns.table("v1", json!({}), &[object], IncludeObject::None, now());
        assert_eq!(table["rows"][0]["cells"], cells, "{resource}");
        assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), cells.as_array().unwrap().len());
    }
}

proptest! {
    #[test]
    fn no_object_panics(object in any_json(), spec in any_json(), status in any_json()) {
        let object = if object.is_object() { object } else { json!({"spec": spec, "status": status}) };
        for (group, resource) in [("", "pods"), ("", "events"), ("apps", "deployments"), ("", "configmaps"),
            ("rbac.authorization.k8s.io", "rolebindings"), ("apiregistration.k8s.io", "apiservices"),
            ("internal.apiserver.k8s.io", "storageversions"), ("storagemigration.k8s.io", "storageversionmigrations"),
            ("flowcontrol.apiserver.k8s.io", "flowschemas"), ("odd", "odd")]
        {
            let table = Columns::built_in(group, resource).table("v1", json!({}), std::slice::from_ref(&object), IncludeObject::Metadata, now());
            let width = table["columnDefinitions"].as_array().map(Vec::len);
            prop_assert_eq!(table["rows"][0]["cells"].as_array().map(Vec::len), width);
        }
    }
}
