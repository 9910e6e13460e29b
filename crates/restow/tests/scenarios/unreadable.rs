//! Objects that cannot be decoded are named, and all others are rewritten.
//!
//! Only on a real kube-apiserver: it writes garbage into etcd.

use std::collections::BTreeMap;

use restow_lab::{ClusterSpec, Part};
use serde_json::{Value, json};

use crate::support::{Restow, Widgets, cluster, lab, name};

const GARBAGE: &[u8] = b"{\"apiVersion\":\"broken.example.com/v1\",\"ki";

fn names(report: &Value) -> Vec<String> {
    let left = report["quarantined"].as_array().unwrap();
    left.iter()
        .map(|object| {
            format!("{}/{}", object["namespace"].as_str().unwrap(), object["name"].as_str().unwrap())
        })
        .collect()
}

#[tokio::test]
async fn unreadable_objects_are_named_and_others_rewritten() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "broken" };
    widgets.define(&client).await;
    widgets.create(&client, 300).await;
    widgets.store_as(&client, "v2").await;
    // Alone, two side by side, and the very last.
    for index in [123, 200, 201, 299] {
        cluster.etcd().put(&format!("{}default/{}", widgets.prefix(), name(index)), GARBAGE).await.unwrap();
    }
    let restow = Restow::new(&cluster);
    // With the server running, whose watch cache has stopped; and after a restart, with a cache that never fills.
    let first =
        restow.migrate(&widgets.name(), &["--page-size", "100", "--pace", "fast"]).await.expect(3).resource();
    assert_eq!(first["rewritten"], 296, "{first:#}");
    assert_eq!(first["verified"], false);
    let found = names(&first);
    for index in [123, 201, 299] {
        assert!(found.contains(&format!("default/{}", name(index))), "{found:?}");
    }
    let text = first["quarantined"].to_string();
    assert!(text.contains("1 more unreadable"), "the neighbour is not counted: {text}");
    let mut versions: BTreeMap<bool, usize> = BTreeMap::new();
    let new = format!("\"apiVersion\":\"{}/v2\"", widgets.group());
    let count = |_: &str, bytes: &[u8]| {
        *versions.entry(String::from_utf8_lossy(bytes).contains(&new)).or_default() += 1;
    };
    cluster.etcd().for_each(&widgets.prefix(), count).await.unwrap();
    assert_eq!(versions, BTreeMap::from([(false, 4), (true, 296)]));

    cluster.restart(Part::ApiServer(0)).await.unwrap();
    let second =
        restow.migrate(&widgets.name(), &["--page-size", "100", "--pace", "fast"]).await.expect(3).resource();
    assert_eq!((&second["rewritten"], &second["current"]), (&json!(0), &json!(296)));
    assert_eq!(names(&second), found);

    // A retry with the garbage still there, and one after it was removed.
    restow.migrate(&widgets.name(), &["--retry-quarantined"]).await.expect(3);
    for index in [123, 200, 201, 299] {
        cluster.etcd().delete(&format!("{}default/{}", widgets.prefix(), name(index))).await.unwrap();
    }
    cluster.restart(Part::ApiServer(0)).await.unwrap();
    let last = restow.migrate(&widgets.name(), &["--retry-quarantined"]).await.expect(0).resource();
    assert_eq!(last["verified"], true);
}
