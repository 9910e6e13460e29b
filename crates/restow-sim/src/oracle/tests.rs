//! What the oracle makes of writes, of a simulated store and of etcd alike.

use bytes::Bytes;
use restow_store::{Change, Entry};
use serde_json::{Value, json};

use super::{Oracle, kept};
use crate::plan::{GROUP, Scene};
use crate::trace::Trace;

const BOAT: &str = "/registry/sim.example/boats/default/o-00";
const DEFINITION: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/boats.sim.example";

fn boat(version: &str, uid: &str, number: u64) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": "Boat", "spec": {"n": number, "crew": ["a"]},
        "metadata": {"uid": uid, "managedFields": [{"manager": "user", "operation": "Update", "fieldsV1": {"f:n": {}}}]},
    })
}

fn definition(stored: &[&str]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "spec": {"versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]},
        "status": {"storedVersions": stored},
    })
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    if let Some(part) = object.pointer_mut(pointer) {
        *part = value;
    }
    object
}

/// Tells an oracle of writes, each with the next revision; none deletes.
fn told(writes: &[(&str, Option<Value>)]) -> (Oracle, Trace) {
    let trace = Trace::begin();
    let oracle = Oracle::new(Scene::Single, GROUP, &trace);
    let mut stored = std::collections::BTreeMap::new();
    for (revision, (key, value)) in (1..).zip(writes) {
        let now = value.as_ref().map(|value| Entry {
            key: (*key).to_owned(),
            value: Bytes::from(value.to_string()),
            create_revision: revision,
            mod_revision: revision,
        });
        let before = stored.insert((*key).to_owned(), now.clone()).flatten();
        oracle.judge(&Change { key: (*key).to_owned(), revision, now, before });
    }
    (oracle, trace)
}

fn violated(trace: &Trace) -> Option<&'static str> {
    trace.end().2.map(|violation| violation.invariant)
}

#[tokio::test]
async fn every_write_is_judged() {
    let both = ["v1", "v2"];
    let no_crew = with(boat("v2", "a", 1), "/spec/crew", json!([]));
    let no_owner = with(boat("v2", "a", 1), "/metadata/managedFields", json!([]));
    for (writes, expected) in [
        // Users make, change, delete and make again; restow stores anew and prunes at the end.
        (vec![(BOAT, Some(boat("v1", "a", 1))), (BOAT, Some(boat("v2", "a", 1)))], None),
        (vec![(BOAT, Some(boat("v1", "a", 1))), (BOAT, Some(boat("v1", "a", 2)))], None),
        (vec![(BOAT, Some(boat("v1", "a", 1))), (BOAT, None), (BOAT, Some(boat("v2", "b", 2)))], None),
        (
            vec![
                (DEFINITION, Some(definition(&both))),
                (BOAT, Some(boat("v2", "a", 1))),
                (DEFINITION, Some(definition(&["v2"]))),
            ],
            None,
        ),
        (
            vec![
                (DEFINITION, Some(definition(&both))),
                (BOAT, Some(boat("v1", "a", 1))),
                (DEFINITION, Some(definition(&["v2"]))),
            ],
            Some("S1"),
        ),
        (vec![(BOAT, Some(boat("v1", "a", 1))), (BOAT, None), (BOAT, Some(boat("v2", "a", 1)))], Some("S3")),
        (vec![(BOAT, Some(with(boat("v2", "a", 1), "/spec", json!({}))))], Some("S3")),
        (vec![(BOAT, Some(boat("v1", "a", 2))), (BOAT, Some(boat("v2", "a", 1)))], Some("S4")),
        (vec![(BOAT, Some(boat("v1", "a", 1))), (BOAT, Some(no_crew))], Some("S5")),
        (vec![(BOAT, Some(boat("v1", "a", 1))), (BOAT, Some(no_owner))], Some("S5")),
    ] {
        let (_, trace) = told(&writes);
        assert_eq!(violated(&trace), expected, "{writes:#?}");
    }
}

#[tokio::test]
async fn a_verified_run_is_held_to_what_was_stored_at_its_last_look() {
    let writes = [(BOAT, Some(boat("v2", "a", 1))), (BOAT, Some(boat("v1", "a", 2)))];
    for (wanted, looked, expected) in [
        (Some("v2"), 2, Some("S2")),
        // It was written after the look.
        (Some("v2"), 1, None),
        (Some("v1"), 2, None),
        (None, 2, Some("S2")),
    ] {
        let (oracle, trace) = told(&writes);
        assert_eq!(oracle.revision(), 2);
        oracle.verified(wanted, looked);
        assert_eq!(violated(&trace), expected, "{wanted:?} at {looked}");
    }
}

#[tokio::test]
async fn a_pass_that_has_rewritten_something_proves_nothing() {
    let writes = [
        (BOAT, Some(boat("v1", "a", 1))),
        (BOAT, Some(boat("v2", "a", 1))),
        // A user writes.
        (BOAT, Some(boat("v2", "a", 2))),
    ];
    for (began, expected) in [(1, Some("S2")), (2, None), (3, None)] {
        let (oracle, trace) = told(&writes);
        oracle.proven_by_a_pass(began);
        assert_eq!(violated(&trace), expected, "began at {began}");
    }
}

#[test]
fn bytes_tell_the_version_or_the_key() {
    for (value, expected) in [
        (boat("v1", "a", 1).to_string(), "v1"),
        ("k8s:enc:aescbc:v1:key2:\u{1}\u{2}".to_owned(), "key2"),
        ("k8s:enc:secretbox:v1:key1::".to_owned(), "key1"),
        ("k8s\0broken".to_owned(), "unreadable"),
    ] {
        let value = Bytes::from(value);
        let entry = Entry { key: BOAT.to_owned(), value, create_revision: 1, mod_revision: 1 };
        assert_eq!(kept(&entry), expected);
    }
}

#[test]
fn what_is_stale_and_what_the_definition_stores() {
    let trace = Trace::begin();
    let empty = Oracle::new(Scene::Single, GROUP, &trace);
    assert_eq!((empty.stored_version(), empty.stale("v2")), (None, Vec::new()));
    let (oracle, _) =
        told(&[(DEFINITION, Some(definition(&["v1", "v2"]))), (BOAT, Some(boat("v1", "a", 1)))]);
    assert_eq!(oracle.stored_version().as_deref(), Some("v2"));
    assert_eq!((oracle.stale("v2"), oracle.stale("v1")), (vec!["o-00".to_owned()], Vec::new()));
}
