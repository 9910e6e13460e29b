//! Content negotiation: partial metadata, tables, YAML, unknown media types.

use serde_json::{Value, json};

use crate::subject::{ApiRequest, Subject};

scenarios![
    partial_object_metadata_is_served_for_objects_and_lists,
    writes_can_return_partial_object_metadata,
    a_table_watch_repeats_no_columns,
    an_unknown_accept_header_gets_406,
    an_unknown_content_type_gets_415,
    configmaps_are_served_as_a_table,
    services_are_served_as_a_table,
    tables_include_the_requested_object_form,
    bodies_may_be_yaml,
    responses_may_be_yaml,
];

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

async fn partial_object_metadata_is_served_for_objects_and_lists(subject: &Subject) {
    let place = subject.namespace("metadata-read").await;
    let secret = json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "data": {"k": "dg=="}});
    let made = place.post("secrets", secret).await.ok();
    let one = place.send(ApiRequest::get("secrets/a").header("accept", METADATA)).await.ok();
    let metadata = &made["metadata"];
    let expected =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
    assert_eq!((&one.body, one.header("content-type")), (&expected, "application/json"));
    let list = place.send(ApiRequest::get("secrets").header("accept", METADATA_LIST)).await.ok();
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(list["items"][0]["metadata"], *metadata);
    assert_eq!(list["items"][0]["data"], Value::Null);
    let page = place.send(ApiRequest::get("secrets?limit=500").header("accept", METADATA_LIST)).await.ok();
    assert!(!page.resource_version().is_empty());
    // The next accepted form is used if the first is not available.
    let both = format!("{METADATA},application/json");
    let one = place.send(ApiRequest::get("secrets/a").header("accept", &both)).await.ok();
    assert_eq!(one["kind"], "PartialObjectMetadata");
}

async fn writes_can_return_partial_object_metadata(subject: &Subject) {
    let place = subject.namespace("metadata-write").await;
    let secret = json!({"metadata": {"name": "a"}, "data": {"k": "dg=="}});
    let made = place.send(ApiRequest::new("POST", "secrets").header("accept", METADATA).json(&secret)).await;
    assert_eq!(
        (made.code(), &made["kind"], &made["data"]),
        (201, &json!("PartialObjectMetadata"), &Value::Null)
    );
    let patch = json!({"metadata": {"uid": made.uid(), "resourceVersion": made.resource_version()}});
    let patched =
        place.send(ApiRequest::new("MERGE", "secrets/a").header("accept", METADATA).json(&patch)).await.ok();
    assert_eq!(patched.body, made.body);
    let failed = place.send(ApiRequest::get("secrets/none").header("accept", METADATA)).await;
    assert_eq!(failed.line(), r#"404 NotFound: secrets "none" not found"#);
    let deleted = place.send(ApiRequest::new("DELETE", "secrets/a").header("accept", METADATA)).await.ok();
    assert_eq!(deleted["status"], "Success");
}

async fn configmaps_are_served_as_a_table(subject: &Subject) {
    let place = subject.namespace("table-configmaps").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await.ok();
    let table = place.send(ApiRequest::get("configmaps").header("accept", TABLE)).await.ok();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert!(!table.resource_version().is_empty());
    let columns = table["columnDefinitions"].as_array().unwrap();
    let column = |name: &str, kind: &str, format: &str, priority: u32| {
        let found = columns.iter().find(|column| column["name"] == name);
        let found = found.unwrap_or_else(|| panic!("no column {name}"));
        assert_eq!(
            (&found["type"], &found["format"], &found["priority"]),
            (&json!(kind), &json!(format), &json!(priority))
        );
        assert!(found["description"].is_string());
    };
    column("Name", "string", "name", 0);
    column("Age", "string", "", 0);
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["cells"][0], "a");
    assert_eq!(rows[0]["cells"].as_array().unwrap().len(), columns.len());
    assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");
    let one = place.send(ApiRequest::get("configmaps/a").header("accept", TABLE)).await.ok();
    assert_eq!((&one["kind"], one["rows"].as_array().unwrap().len()), (&json!("Table"), 1));
}

async fn services_are_served_as_a_table(subject: &Subject) {
    let place = subject.namespace("table-services").await;
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 53, "protocol": "UDP"}]);
    for (name, spec) in [
        ("a", json!({"clusterIP": "None", "ports": ports, "selector": {"y": "2", "x": "1"}})),
        ("b", json!({"type": "ExternalName", "externalName": "b.example"})),
    ] {
        place.post("services", json!({"metadata": {"name": name}, "spec": spec})).await.ok();
    }
    let table = place.send(ApiRequest::get("services").header("accept", TABLE)).await.ok();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let columns: Vec<String> = columns
        .map(|column| format!("{} {}", column["name"].as_str().unwrap(), column["priority"]))
        .collect();
    assert_eq!(
        columns,
        ["Name 0", "Type 0", "Cluster-IP 0", "External-IP 0", "Port(s) 0", "Age 0", "Selector 1"]
    );
    let cells = |row: usize| {
        let mut cells = table["rows"][row]["cells"].as_array().unwrap().clone();
        cells.remove(5);
        cells
    };
    assert_eq!(cells(0), ["a", "ClusterIP", "None", "<none>", "80/TCP,53/UDP", "x=1,y=2"]);
    assert_eq!(cells(1), ["b", "ExternalName", "<none>", "b.example", "<none>", "<none>"]);
}

async fn tables_include_the_requested_object_form(subject: &Subject) {
    let place = subject.namespace("table-include").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await.ok();
    for (include, kind) in
        [("None", Value::Null), ("Metadata", json!("PartialObjectMetadata")), ("Object", json!("ConfigMap"))]
    {
        let path = format!("configmaps?includeObject={include}");
        let table = place.send(ApiRequest::get(&path).header("accept", TABLE)).await.ok();
        assert_eq!(table["rows"][0]["object"]["kind"], kind, "{include}");
    }
    let refused =
        place.send(ApiRequest::get("configmaps?includeObject=Nonsense").header("accept", TABLE)).await;
    assert_eq!(refused.reason(), "400 BadRequest", "{}", refused.line());
    let none = place.send(ApiRequest::get("configmaps/none").header("accept", TABLE)).await;
    assert_eq!(none.line(), r#"404 NotFound: configmaps "none" not found"#);
}

async fn a_table_watch_repeats_no_columns(subject: &Subject) {
    let place = subject.namespace("table-watch").await;
    let from = place.get("configmaps").await.ok().resource_version();
    let call =
        ApiRequest::get(&format!("configmaps?watch=true&resourceVersion={from}")).header("accept", TABLE);
    let mut watching = place.watch_with(call).await;
    for name in ["a", "b"] {
        place.post("configmaps", json!({"metadata": {"name": name}})).await.ok();
    }
    let (first, second) = (watching.event().await.unwrap(), watching.event().await.unwrap());
    assert_eq!((&first["object"]["kind"], &second["object"]["kind"]), (&json!("Table"), &json!("Table")));
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    assert!(!first["object"]["columnDefinitions"].as_array().unwrap().is_empty());
    assert_eq!(second["object"]["columnDefinitions"], Value::Null);
}

async fn an_unknown_accept_header_gets_406(subject: &Subject) {
    let place = subject.namespace("accept-nothing").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    for accept in ["text/html", "application/xml", "application/json;as=Nonsense;g=meta.k8s.io;v=v1"] {
        let answer = place.send(ApiRequest::get("configmaps/a").header("accept", accept)).await;
        assert_eq!(answer.reason(), "406 NotAcceptable", "{accept}: {}", answer.line());
    }
}

async fn an_unknown_content_type_gets_415(subject: &Subject) {
    let place = subject.namespace("content-nothing").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    let object = json!({"metadata": {"name": "b"}});
    for kind in ["text/plain", "application/xml"] {
        let answer = place
            .send(ApiRequest::new("POST", "configmaps").header("content-type", kind).json(&object))
            .await;
        assert_eq!(answer.reason(), "415 UnsupportedMediaType", "{kind}: {}", answer.line());
        let message = answer["message"].as_str().unwrap();
        assert!(message.starts_with("the body of the request was in an unknown format - accepted media types include: application/json"), "{message}");
    }
    for kind in ["application/json", "text/plain", "application/merge-patch+yaml"] {
        let answer = place
            .send(ApiRequest::new("MERGE", "configmaps/a").header("content-type", kind).body("{}"))
            .await;
        assert_eq!(answer.reason(), "415 UnsupportedMediaType", "{kind}: {}", answer.line());
    }
}

async fn bodies_may_be_yaml(subject: &Subject) {
    let place = subject.namespace("content-yaml").await;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n";
    let call = ApiRequest::new("POST", "configmaps").header("content-type", "application/yaml").body(text);
    let made = place.send(call).await;
    assert_eq!((made.code(), &made["data"]), (201, &json!({"k": "v"})));
}

async fn responses_may_be_yaml(subject: &Subject) {
    let place = subject.namespace("accept-yaml").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    let yaml = place.send(ApiRequest::get("configmaps/a").header("accept", "application/yaml")).await.ok();
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(yaml.body.as_str().unwrap().contains("name: a\n"), "{}", yaml.body);
}
