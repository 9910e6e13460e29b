//! Sequences of writes by several managers, and who owns what afterwards.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::schema::Schema;

/// Widgets: v1 has `size`, v2 has `length`, which is the same; v9 is gone.
struct Widgets {
    v1: Schema,
    v2: Schema,
    reset: BTreeMap<&'static str, Set>,
}

const V1: &str = "example.com/v1";
const V2: &str = "example.com/v2";

fn schema(size: &str) -> Schema {
    Schema::of_custom_resource(
        &json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                size: {"type": "integer"},
                "colour": {"type": "string"},
                "list": {"type": "array", "items": {"type": "string"}},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                    "items": {"type": "object", "properties": {"port": {"type": "integer"}, "name": {"type": "string"},
                        "protocol": {"type": "string", "default": "TCP"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "selector": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            }},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        }}),
        false,
    )
}

impl Default for Widgets {
    fn default() -> Self {
        Self { v1: schema("size"), v2: schema("length"), reset: BTreeMap::new() }
    }
}

impl Versions for Widgets {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        match api_version {
            V1 => Some(&self.v1),
            V2 => Some(&self.v2),
            _ => None,
        }
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Unconverted> {
        let (from, to) = match api_version {
            V1 => ("length", "size"),
            V2 => ("size", "length"),
            "example.com/v8" => return Err(Unconverted::Failed("no webhook".into())),
            _ => return Err(Unconverted::Missing),
        };
        let mut object = object.clone();
        object["apiVersion"] = json!(api_version);
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && let Some(value) = spec.remove(from)
        {
            spec.insert(to.into(), value);
        }
        Ok(object)
    }

    fn reset_fields(&self, api_version: &str) -> Option<&Set> {
        self.reset.get(api_version)
    }
}

/// An object under several managers.
struct Subject {
    widgets: Widgets,
    live: Value,
    minute: u32,
}

impl Subject {
    fn new() -> Self {
        Self { widgets: Widgets::default(), live: json!({"apiVersion": V1, "kind": "Widget"}), minute: 0 }
    }

    fn manager<'a>(&'a self, api_version: &'a str, now: &'a str) -> FieldManager<'a> {
        FieldManager { versions: &self.widgets, api_version, subresource: "", now }
    }

    fn next(&mut self) -> String {
        self.minute += 1;
        format!("2026-01-01T00:{:02}:00Z", self.minute)
    }

    fn in_version(&self, api_version: &str) -> Value {
        match self.live["apiVersion"] == api_version {
            true => self.live.clone(),
            false => self.widgets.convert(&self.live, api_version).unwrap(),
        }
    }

    fn apply_with(
        &mut self,
        manager: &str,
        api_version: &str,
        spec: Value,
        force: bool,
    ) -> Result<(), ApplyError> {
        let (now, live) = (self.next(), self.in_version(api_version));
        let object = |spec| json!({"apiVersion": api_version, "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
        let empty = json!({"apiVersion": api_version, "kind": "Widget"});
        self.live = self.manager(api_version, &now).apply(&live, &object(spec), &empty, manager, force)?;
        self.live["metadata"]["uid"] = json!("u");
        Ok(())
    }

    fn apply(&mut self, manager: &str, spec: Value) -> Result<(), ApplyError> {
        self.apply_with(manager, V1, spec, false)
    }

    fn update(&mut self, manager: &str, change: impl FnOnce(&mut Value)) {
        let now = self.next();
        let mut new = self.live.clone();
        change(&mut new);
        let managed = self.manager(V1, &now).update(&self.live, &new, manager).unwrap();
        set_managed_fields(&mut new, managed);
        new["metadata"]["uid"] = json!("u");
        self.live = new;
    }

    /// The managers with their fields below `spec`.
    fn owners(&self) -> Vec<(String, Value)> {
        let entries = self.live["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let owner = |entry: &Value| {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            (format!("{} {}", text("manager"), text("operation")), entry["fieldsV1"]["f:spec"].clone())
        };
        entries.iter().map(owner).collect()
    }
}

fn owner(name: &str, fields: Value) -> (String, Value) {
    (name.to_owned(), fields)
}

fn conflicts(error: ApplyError) -> Vec<String> {
    let ApplyError::Conflicts(conflicts) = error else { panic!("{error}") };
    conflicts.iter().map(|conflict| format!("{}: {}", conflict.message(), conflict.path)).collect()
}

#[test]
fn an_applier_owns_what_it_applies() {
    let mut subject = Subject::new();
    subject.apply("alice", json!({"size": 1, "map": {"a": "1"}, "set": ["x"]})).unwrap();
    let fields = json!({"f:size": {}, "f:map": {"f:a": {}}, "f:set": {"v:\"x\"": {}}});
    assert_eq!(subject.owners(), [owner("alice Apply", fields)]);
    assert_eq!(subject.live["metadata"]["managedFields"][0]["time"], "2026-01-01T00:01:00Z");
}

#[test]
fn appliers_of_the_same_value_share_it() {
    let mut subject = Subject::new();
    subject.apply("alice", json!({"size": 1})).unwrap();
    subject.apply("bob", json!({"size": 1})).unwrap();
    let fields = json!({"f:size": {}});
    assert_eq!(subject.owners(), [owner("bob Apply", fields.clone()), owner("alice Apply", fields)]);
}

#[test]
fn another_value_of_an_owned_field_is_a_conflict_unless_it_is_forced() {
    let mut subject = Subject::new();
    subject.apply("alice", json!({"size": 1, "colour": "red", "set": ["x"]})).unwrap();
    let error = subject.apply("bob", json!({"size": 2, "colour": "blue", "set": ["x", "y"]})).unwrap_err();
    let message = "Apply failed with 2 conflicts: conflicts with \"alice\":\n- .spec.colour\n- .spec.size";
    assert_eq!(error.to_string(), message);
    assert_eq!(
        conflicts(error),
        ["conflict with \"alice\": .spec.colour", "conflict with \"alice\": .spec.size"]
    );
    subject.apply_with("bob", V1, json!({"size": 2}), true).unwrap();
    assert_eq!(subject.live["spec"]["size"], 2);
    let alice = json!({"f:colour": {}, "f:set": {"v:\"x\"": {}}});
    assert_eq!(subject.owners(), [owner("alice Apply", alice), owner("bob Apply", json!({"f:size": {}}))]);
}

#[test]
fn conflicts_with_updates_name_their_version() {
    let mut subject = Subject::new();
    subject.update("ctl", |object| object["spec"] = json!({"size": 1}));
    let error = subject.apply("alice", json!({"size": 2})).unwrap_err();
    let expected = "Apply failed with 1 conflict: conflict with \"ctl\" using example.com/v1: .spec.size";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn what_is_not_applied_any_more_is_removed_if_nobody_else_owns_it() {
    let mut subject = Subject::new();
    subject
        .apply(
            "alice",
            json!({"size": 1, "map": {"a": "1", "b": "2"}, "set": ["x", "y"],
        "ports": [{"port": 1}, {"port": 2, "name": "n"}]}),
        )
        .unwrap();
    subject.apply("bob", json!({"map": {"b": "2"}, "ports": [{"port": 2}]})).unwrap();
    subject.apply("alice", json!({"map": {}, "set": ["y"]})).unwrap();
    let expected = json!({"map": {"b": "2"}, "set": ["y"], "ports": [{"port": 2}]});
    assert_eq!(subject.live["spec"], expected);
    let alice = json!({"f:map": {}, "f:set": {"v:\"y\"": {}}});
    assert!(subject.owners().contains(&owner("alice Apply", alice)), "{:?}", subject.owners());
    subject.apply("bob", json!({})).unwrap();
    assert_eq!(subject.live["spec"], json!({"map": null, "set": ["y"]}));
}

#[test]
fn what_an_update_changed_stays() {
    let mut subject = Subject::new();
    subject.apply("alice", json!({"size": 1, "colour": "red"})).unwrap();
    subject.update("ctl", |object| object["spec"]["size"] = json!(5));
    subject.apply("alice", json!({"colour": "red"})).unwrap();
    assert_eq!(subject.live["spec"], json!({"size": 5, "colour": "red"}));
    let expected =
        [owner("alice Apply", json!({"f:colour": {}})), owner("ctl Update", json!({"f:size": {}}))];
    assert_eq!(subject.owners(), expected);
}

#[test]
fn a_defaulted_key_is_the_same_item() {
    let mut subject = Subject::new();
    subject.apply("alice", json!({"ports": [{"port": 80, "protocol": "TCP", "name": "a"}]})).unwrap();
    let error = subject.apply("bob", json!({"ports": [{"port": 80, "name": "b"}]})).unwrap_err();
    assert_eq!(conflicts(error), ["conflict with \"alice\": .spec.ports[port=80,protocol=\"TCP\"].name"]);
    subject.apply("bob", json!({"ports": [{"port": 80, "protocol": "UDP"}]})).unwrap();
    assert_eq!(subject.live["spec"]["ports"].as_array().unwrap().len(), 2);
}

#[test]
fn atomic_values_have_one_owner() {
    let mut subject = Subject::new();
    subject.apply("alice", json!({"selector": {"a": "1"}, "list": ["a"]})).unwrap();
    let error = subject.apply("bob", json!({"selector": {"b": "1"}, "list": ["a", "b"]})).unwrap_err();
    assert_eq!(
        conflicts(error),
        ["conflict with \"alice\": .spec.list", "conflict with \"alice\": .spec.selector"]
    );
    subject.apply("alice", json!({})).unwrap();
    assert_eq!(subject.live.get("spec"), Some(&Value::Null));
}

#[test]
fn an_apply_that_changes_nothing_keeps_the_time() {
    let mut subject = Subject::new();
    subject.apply("alice", json!({"size": 1})).unwrap();
    let before = subject.live.clone();
    subject.apply("alice", json!({"size": 1})).unwrap();
    assert_eq!(subject.live, before);
}

#[test]
fn fields_are_removed_across_versions() {
    let mut subject = Subject::new();
    subject.apply("alice", json!({"size": 1, "colour": "red"})).unwrap();
    // The same manager in another version keeps its fields, by the names that they have there.
    subject.apply_with("alice", V2, json!({"length": 1}), false).unwrap();
    assert_eq!(subject.live["spec"], json!({"length": 1}));
    assert_eq!(subject.owners(), [owner("alice Apply", json!({"f:length": {}}))]);
    let error = subject.apply_with("bob", V1, json!({"size": 2}), false).unwrap_err();
    assert_eq!(conflicts(error), ["conflict with \"alice\": .spec.length"]);
    subject.apply_with("bob", V1, json!({"size": 1}), false).unwrap();
    subject.apply_with("alice", V2, json!({"colour": "blue"}), false).unwrap();
    assert_eq!(subject.live["spec"], json!({"length": 1, "colour": "blue"}));
}

#[test]
fn entries_of_versions_that_are_gone_are_dropped() {
    let mut subject = Subject::new();
    subject.apply("alice", json!({"size": 1})).unwrap();
    subject.live["metadata"]["managedFields"][0]["apiVersion"] = json!("example.com/v9");
    subject.apply("bob", json!({"size": 2})).unwrap();
    assert_eq!(subject.owners(), [owner("bob Apply", json!({"f:size": {}}))]);
    // If the version cannot be converted to, that is an error; updates then clear all entries.
    subject.live["metadata"]["managedFields"][0]["apiVersion"] = json!("example.com/v8");
    assert_eq!(subject.apply("alice", json!({"size": 2})), Err(ApplyError::Update("no webhook".into())));
    subject.update("ctl", |object| object["spec"]["size"] = json!(3));
    assert_eq!(subject.owners(), []);
}

#[test]
fn fields_from_before_the_first_apply_have_a_manager() {
    let mut subject = Subject::new();
    subject.live = json!({"apiVersion": V1, "kind": "Widget", "metadata": {"name": "a", "uid": "u"}, "spec": {"size": 1, "colour": "red"}});
    let error = subject.apply("alice", json!({"size": 2})).unwrap_err();
    assert_eq!(conflicts(error), ["conflict with \"before-first-apply\" using example.com/v1: .spec.size"]);
    subject.apply("alice", json!({"size": 1, "map": {"a": "1"}})).unwrap();
    let before = json!({".": {}, "f:colour": {}, "f:size": {}});
    let alice = json!({"f:map": {"f:a": {}}, "f:size": {}});
    assert_eq!(subject.owners(), [owner("alice Apply", alice), owner("before-first-apply Update", before)]);
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_client() {
    let last = json!({"apiVersion": V1, "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1, "colour": "red"}});
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let start = |size: u32| {
        let mut subject = Subject::new();
        subject.update("kubectl-client-side-apply", |object| {
            object["metadata"] = json!({"name": "a", "annotations": {annotation: last.to_string()}});
            object["spec"] = json!({"size": size, "colour": "red"});
        });
        subject
    };
    let mut subject = start(1);
    subject.apply("kubectl", json!({"size": 3, "colour": "red"})).unwrap();
    assert_eq!(subject.live["spec"]["size"], 3);
    let kept: Value =
        serde_json::from_str(subject.live["metadata"]["annotations"][annotation].as_str().unwrap()).unwrap();
    assert_eq!(kept["spec"], json!({"size": 3, "colour": "red"}));
    // What somebody else has changed since is a conflict.
    let error = start(2).apply("kubectl", json!({"size": 3, "colour": "blue"})).unwrap_err();
    let expected = "conflict with \"kubectl-client-side-apply\" using example.com/v1: .spec.size";
    assert_eq!(conflicts(error), [expected]);
    assert!(matches!(start(1).apply("alice", json!({"size": 3})), Err(ApplyError::Conflicts(_))));
}

#[test]
fn fields_that_the_endpoint_resets_are_not_owned() {
    let mut subject = Subject::new();
    subject.widgets.reset.insert(V1, Set::of_fields(&[&["status"]]));
    let config =
        json!({"apiVersion": V1, "kind": "Widget", "spec": {"size": 1}, "status": {"phase": "done"}});
    let live = subject.live.clone();
    let made = subject.manager(V1, "t").apply(&live, &config, &live, "alice", false).unwrap();
    assert_eq!(made["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:spec": {"f:size": {}}}));
}

#[test]
fn invalid_configurations_are_refused() {
    let subject = Subject::new();
    let apply =
        |config: Value| subject.manager(V1, "t").apply(&subject.live, &config, &subject.live, "alice", false);
    let managed = json!({"apiVersion": V1, "kind": "Widget", "metadata": {"managedFields": []}});
    assert_eq!(apply(managed), Err(ApplyError::ManagedFields));
    let twice =
        json!({"apiVersion": V1, "kind": "Widget", "metadata": {"name": "a"}, "spec": {"set": ["x", "x"]}});
    let expected = "failed to create typed patch object (/a; example.com/v1, Kind=Widget): .spec.set: duplicate entries for \
                    key [=\"x\"]";
    assert_eq!(apply(twice).unwrap_err().to_string(), expected);
}

#[test]
fn unreadable_managed_fields_are_cleared_by_updates_and_refused_by_applies() {
    let mut subject = Subject::new();
    subject.apply("alice", json!({"size": 1})).unwrap();
    subject.live["metadata"]["managedFields"] = json!([{"operation": "Guess"}]);
    let error = subject.apply("alice", json!({"size": 1})).unwrap_err();
    assert_eq!(error.to_string(), "failed to decode managed fields: operation must be `Apply` or `Update`");
    subject.update("ctl", |object| object["spec"]["size"] = json!(3));
    assert_eq!(subject.owners(), []);
}

#[test]
fn the_oldest_updaters_of_a_version_are_merged() {
    let mut subject = Subject::new();
    for index in 0..15 {
        subject.update(&format!("m{index:02}"), |object| {
            object["spec"]["map"][format!("k{index}")] = json!("v")
        });
    }
    let owners = subject.owners();
    assert_eq!(owners.len(), 10);
    assert_eq!(owners[0].0, "ancient-changes Update");
    assert_eq!(owners[0].1["f:map"].as_object().unwrap().len(), 7);
}
