//! Tests of metadata on create, update and delete.

use proptest::prelude::*;
use serde_json::json;

use super::delete::{Deletion, Options};
use super::*;
use crate::arbitrary::any_json;
use crate::http::status::Cause;

fn rules() -> Rules {
    let resource = GroupResource::new("example.com", "widgets");
    Rules::custom(resource, GroupKind::new("example.com", "Widget"), true, true)
}

fn now() -> Timestamp {
    "2026-01-02T03:04:05.678Z".parse().unwrap()
}

fn stored() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "a", "namespace": "default", "uid": "u1", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"size": 1}, "status": {"ready": true}})
}

fn birth() -> create::CreateOptions<'static> {
    create::CreateOptions { namespace: "default", uid: "u1", now: now(), random: 12345 }
}

#[test]
fn a_new_object_gets_uid_time_and_generation() {
    let mut object = json!({"metadata": {"generateName": "w-", "generation": 9, "uid": "mine", "selfLink": "x",
        "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3}, "status": {"ready": true}});
    create::prepare(&mut object, &rules(), &birth()).unwrap();
    let generated = create::generated_name("w-", 12345);
    assert_eq!(
        object,
        json!({"metadata": {"generateName": "w-", "name": generated, "namespace": "default", "generation": 1,
            "uid": "u1", "creationTimestamp": "2026-01-02T03:04:05Z"}})
    );
    assert!(validate::create(&object, &rules()).is_empty());
}

#[test]
fn a_generated_name_fits_a_label() {
    assert_eq!(create::generated_name(&"x".repeat(100), 1).len(), 63);
    assert!(create::generated_name(&"é".repeat(100), u64::MAX).len() <= 63);
    assert_eq!(create::generated_name("a", 0), "abbbbb");
}

#[test]
fn a_create_with_another_namespace_or_a_resource_version_is_refused() {
    let cases = [
        (json!({"metadata": {"name": "a", "namespace": "other"}}), 400),
        (json!({"metadata": {"name": "a", "resourceVersion": "5"}}), 500),
    ];
    for (mut object, code) in cases {
        assert_eq!(create::prepare(&mut object, &rules(), &birth()).unwrap_err().code(), code);
    }
    let mut zero = json!({"metadata": {"name": "a", "resourceVersion": "0"}});
    create::prepare(&mut zero, &rules(), &birth()).unwrap();
    assert_eq!(field(&zero, "resourceVersion"), None);
}

#[test]
fn metadata_errors_name_their_fields() {
    let long = "x".repeat(64);
    let cases = [
        (json!({"namespace": "d"}), vec!["metadata.name"]),
        (json!({"name": "a"}), vec!["metadata.namespace"]),
        (json!({"name": "A", "namespace": "d"}), vec!["metadata.name"]),
        (json!({"name": "a", "namespace": "a.b"}), vec!["metadata.namespace"]),
        (json!({"name": "a", "namespace": "d", "labels": {"-": "b"}}), vec!["metadata.labels"]),
        (json!({"name": "a", "namespace": "d", "labels": {"a/b/c": "b"}}), vec!["metadata.labels"]),
        (json!({"name": "a", "namespace": "d", "labels": {"a": long}}), vec!["metadata.labels"]),
        (json!({"name": "a", "namespace": "d", "annotations": {"A.b/C": "anything at all!"}}), vec![]),
        (
            json!({"name": "a", "namespace": "d", "annotations": {"a": "x".repeat(262_145)}}),
            vec!["metadata.annotations"],
        ),
        (json!({"name": "a", "namespace": "d", "finalizers": ["a b"]}), vec!["metadata.finalizers"]),
        (
            json!({"name": "a", "namespace": "d", "finalizers": ["orphan", "foregroundDeletion"]}),
            vec!["metadata.finalizers"],
        ),
        (
            json!({"name": "a", "namespace": "d", "ownerReferences": [{"apiVersion": "v1", "kind": "Event"}]}),
            vec![
                "metadata.ownerReferences[0].name",
                "metadata.ownerReferences[0].uid",
                "metadata.ownerReferences[0]",
            ],
        ),
        (
            json!({"name": "a", "namespace": "d", "managedFields": [{"operation": "Odd"}]}),
            vec!["metadata.managedFields[0].operation"],
        ),
    ];
    for (metadata, fields) in cases {
        let causes = validate::create(&json!({"metadata": metadata}), &rules());
        let found: Vec<_> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(found, fields, "{metadata}");
    }
}

#[test]
fn name_errors_read_like_those_of_kube_apiserver() {
    let causes = validate::create(&json!({"metadata": {"name": "Bad_Name", "namespace": "d"}}), &rules());
    assert_eq!(
        Cause::aggregate(&causes),
        "metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain must consist of lower case \
         alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
         'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    );
}

#[test]
fn names_follow_the_rule_of_their_resource() {
    let cases = [
        (NameRule::Subdomain, "a.b-c", false, 0),
        (NameRule::Subdomain, "a-", true, 0),
        (NameRule::Subdomain, "a-", false, 1),
        (NameRule::Label, "a.b", false, 1),
        (NameRule::Label, "a--b", false, 0),
        (NameRule::PathSegment, "system:node%", false, 1),
        (NameRule::PathSegment, "..", false, 1),
        (NameRule::PathSegment, "..", true, 0),
        (NameRule::PathSegment, "system:admin", false, 0),
    ];
    for (rule, name, prefix, errors) in cases {
        assert_eq!(rule.errors(name, prefix).len(), errors, "{name}");
    }
}

#[test]
fn an_update_restores_what_cannot_change() {
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "a", "namespace": "default", "resourceVersion": "7", "generation": 50,
            "creationTimestamp": "2000-01-01T00:00:00Z", "labels": {"b": "c"}},
        "spec": {"size": 2}, "status": {"ready": false}});
    update::prepare(&mut object, &stored(), &rules(), Endpoint::Main).unwrap();
    let mut expected = stored();
    expected["metadata"]["generation"] = json!(3);
    expected["metadata"]["labels"] = json!({"b": "c"});
    expected["spec"]["size"] = json!(2);
    assert_eq!(object, expected);
    assert!(validate::update(&object, &stored(), &rules()).is_empty());
}

#[test]
fn the_status_endpoint_changes_the_status_alone() {
    let mut object = stored();
    object["metadata"]["labels"] = json!({"b": "c"});
    object["metadata"]["managedFields"] = json!([{"manager": "m"}]);
    object["spec"] = json!({"size": 5});
    object["status"] = json!({"ready": false});
    update::prepare(&mut object, &stored(), &rules(), Endpoint::Status).unwrap();
    let mut expected = stored();
    expected["status"] = json!({"ready": false});
    expected["metadata"]["managedFields"] = json!([{"manager": "m"}]);
    assert_eq!(object, expected);

    let built_in = Rules { status: StatusRule::KeepSpecAnd(&["labels"]), ..rules() };
    let mut object = stored();
    object["metadata"]["labels"] = json!({"b": "c"});
    object["metadata"]["annotations"] = json!({"kept": "yes"});
    object["spec"] = json!({"size": 5});
    update::prepare(&mut object, &stored(), &built_in, Endpoint::Status).unwrap();
    assert_eq!(field(&object, "labels"), None);
    assert_eq!(field(&object, "annotations"), Some(&json!({"kept": "yes"})));
    assert_eq!(object["spec"], stored()["spec"]);
}

#[test]
fn an_update_of_an_old_resource_version_is_a_conflict() {
    let unconditional = Rules { unconditional_update: true, ..rules() };
    let cases = [
        (rules(), json!("7"), None),
        (rules(), json!("6"), Some(409)),
        (rules(), json!(null), Some(422)),
        (rules(), json!("0"), Some(422)),
        (rules(), json!("x"), Some(500)),
        (unconditional.clone(), json!(null), None),
        (unconditional, json!("6"), Some(409)),
    ];
    for (rules, version, code) in cases {
        let mut object = stored();
        object["metadata"]["resourceVersion"] = version.clone();
        let refusal = update::prepare(&mut object, &stored(), &rules, Endpoint::Main).err();
        assert_eq!(refusal.map(|refusal| refusal.code()), code, "{version}");
    }
}

#[test]
fn an_update_that_needs_a_resource_version_is_refused_without() {
    let mut object = stored();
    set(&mut object, "resourceVersion", None);
    let refusal = update::prepare(&mut object, &stored(), &rules(), Endpoint::Main).unwrap_err();
    assert_eq!(
        refusal.message(),
        "widgets.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an \
         update"
    );
}

#[test]
fn an_update_with_another_name_is_refused() {
    let cases = [
        (json!({"metadata": {"name": "a"}}), None),
        (json!({"metadata": {"name": "a", "namespace": "default"}}), None),
        (json!({"metadata": {"name": "a", "namespace": "other"}}), Some(400)),
        (json!({"metadata": {"name": "b"}}), Some(400)),
        (json!({"metadata": {}}), Some(400)),
        (json!({}), Some(400)),
    ];
    for (mut object, code) in cases {
        let refusal = update::check_names(&mut object, &rules(), "default", "a").err();
        assert_eq!(refusal.map(|refusal| refusal.code()), code, "{object}");
    }
}

#[test]
fn an_update_with_another_uid_is_a_conflict() {
    let object = json!({"metadata": {"name": "a", "uid": "u0"}});
    let refusal = update::check_uid(&object, Some(&stored()), &rules(), "/registry/x").unwrap_err();
    assert_eq!(
        refusal.message(),
        "Operation cannot be fulfilled on widgets.example.com \"a\": StorageError: invalid object, Code: 4, Key: \
         /registry/x, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: u0, UID in \
         object meta: u1"
    );
    assert_eq!(update::check_uid(&json!({"metadata": {"uid": "u1"}}), Some(&stored()), &rules(), ""), Ok(()));
    assert_eq!(update::check_uid(&json!({"metadata": {}}), None, &rules(), ""), Ok(()));
}

#[test]
fn changes_of_immutable_metadata_are_refused() {
    let mut old = stored();
    set(&mut old, "deletionTimestamp", Some(json!("2026-01-02T00:00:00Z")));
    set(&mut old, "finalizers", Some(json!(["a.b/c"])));
    let mut object = old.clone();
    set(&mut object, "uid", Some(json!("other")));
    set(&mut object, "finalizers", Some(json!(["a.b/c", "a.b/d"])));
    let causes = validate::update(&object, &old, &rules());
    assert_eq!(
        Cause::aggregate(&causes),
        "[metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers []string{\"a.b/d\"}, metadata.uid: Invalid value: \"other\": field is immutable]"
    );
    assert_eq!(causes.len(), 4);
}

#[test]
fn an_update_that_changes_nothing_is_recognized() {
    let mut old = stored();
    set(&mut old, "managedFields", Some(json!([{"manager": "m", "time": "2026-01-01T00:00:00Z"}])));
    let mut object = old.clone();
    set(&mut object, "managedFields", Some(json!([{"manager": "m", "time": "2026-02-02T00:00:00Z"}])));
    assert!(update::restore_times(&mut object, &old));
    assert_eq!(object, old);
    for change in [json!([{"manager": "n", "time": "2026-01-01T00:00:00Z"}]), json!([])] {
        let mut object = old.clone();
        set(&mut object, "managedFields", Some(change));
        assert!(!update::restore_times(&mut object, &old));
    }
    let mut object = old.clone();
    set(&mut object, "labels", Some(json!({"a": "b"})));
    assert!(!update::restore_times(&mut object, &old));
}

#[test]
fn removing_the_last_finalizer_deletes_the_object() {
    let mut old = stored();
    set(&mut old, "finalizers", Some(json!(["a.b/c"])));
    let kept = old.clone();
    let mut object = stored();
    assert!(!update::is_finished(&object, &old));
    set(&mut old, "deletionTimestamp", Some(json!("2026-01-02T00:00:00Z")));
    set(&mut old, "deletionGracePeriodSeconds", Some(json!(0)));
    set(&mut object, "finalizers", Some(json!([])));
    assert!(update::is_finished(&object, &old));
    assert!(!update::is_finished(&kept, &old));
}

fn decided(object: &Value, options: Options) -> Deletion {
    delete::decide(object, &rules(), &options, now()).unwrap()
}

#[test]
fn an_object_without_finalizers_is_deleted_at_once() {
    assert_eq!(decided(&stored(), Options::default()), Deletion::Remove);
    let background = Options { propagation_policy: Some("Background".into()), ..Options::default() };
    assert_eq!(decided(&stored(), background), Deletion::Remove);
}

#[test]
fn finalizers_delay_a_deletion() {
    let mut object = stored();
    set(&mut object, "finalizers", Some(json!(["a.b/c"])));
    let Deletion::Mark(marked) = decided(&object, Options::default()) else { panic!("it stays") };
    assert_eq!(text(&marked, "deletionTimestamp"), "2026-01-02T03:04:05Z");
    assert_eq!(field(&marked, "deletionGracePeriodSeconds"), Some(&json!(0)));
    assert_eq!(generation(&marked), 3);
    assert_eq!(decided(&marked, Options::default()), Deletion::Pending);
}

#[test]
fn a_propagation_policy_becomes_a_finalizer() {
    for (policy, finalizer) in [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")] {
        let options = Options { propagation_policy: Some(policy.into()), ..Options::default() };
        let Deletion::Mark(marked) = decided(&stored(), options) else { panic!("it stays") };
        assert_eq!(finalizers(&marked), [finalizer]);
    }
    let mut object = stored();
    set(&mut object, "finalizers", Some(json!(["foregroundDeletion"])));
    assert!(matches!(decided(&object, Options::default()), Deletion::Mark(_)));
    let background = Options { propagation_policy: Some("Background".into()), ..Options::default() };
    assert_eq!(decided(&object, background), Deletion::Remove);
}

#[test]
fn delete_preconditions_are_checked() {
    let cases = [
        (Options { uid: Some("u1".into()), resource_version: Some("7".into()), ..Options::default() }, None),
        (
            Options { uid: Some("u0".into()), ..Options::default() },
            Some(
                "Operation cannot be fulfilled on Widget.example.com \"a\": the UID in the precondition (u0) does not \
                 match the UID in record (u1). The object might have been deleted and then recreated",
            ),
        ),
        (
            Options { resource_version: Some("6".into()), ..Options::default() },
            Some(
                "Operation cannot be fulfilled on Widget.example.com \"a\": the ResourceVersion in the precondition \
                 (6) does not match the ResourceVersion in record (7). The object might have been modified",
            ),
        ),
    ];
    for (options, message) in cases {
        let refusal = delete::decide(&stored(), &rules(), &options, now()).err();
        assert_eq!(refusal.as_ref().map(|refusal| refusal.message()), message);
    }
}

#[test]
fn a_running_pod_gets_its_grace_period() {
    let rules = Rules { graceful: true, ..rules() };
    let pod = |node: &str| {
        let mut pod = stored();
        pod["spec"] = json!({"nodeName": node, "terminationGracePeriodSeconds": 30});
        pod
    };
    assert_eq!(delete::decide(&pod(""), &rules, &Options::default(), now()).unwrap(), Deletion::Remove);
    let Deletion::Mark(marked) = delete::decide(&pod("n"), &rules, &Options::default(), now()).unwrap()
    else {
        panic!("it stays")
    };
    assert_eq!(text(&marked, "deletionTimestamp"), "2026-01-02T03:04:35Z");
    assert_eq!(delete::decide(&marked, &rules, &Options::default(), now()).unwrap(), Deletion::Pending);
    let now_please = Options { grace_period_seconds: Some(0), ..Options::default() };
    assert_eq!(delete::decide(&marked, &rules, &now_please, now()).unwrap(), Deletion::Remove);
}

#[test]
fn delete_options_are_checked() {
    let cases = [
        (json!({}), None),
        (json!({"propagationPolicy": "Foreground", "preconditions": {"uid": "a"}, "dryRun": ["All"]}), None),
        (json!({"propagationPolicy": "Odd"}), Some(422)),
        (json!({"propagationPolicy": "Orphan", "orphanDependents": true}), Some(422)),
        (json!({"dryRun": ["Some"]}), Some(422)),
    ];
    for (body, code) in cases {
        assert_eq!(Options::parse(&body).err().map(|refusal| refusal.code()), code, "{body}");
    }
}

#[test]
fn metadata_is_normalized() {
    let mut object = json!({"metadata": {"name": "a", "labels": {}, "finalizers": [], "creationTimestamp": null,
        "generation": 0, "odd": 1, "annotations": {"a": null}, "deletionTimestamp": "2026-01-02T05:04:05.5+02:00",
        "ownerReferences": [{"kind": "K", "name": "n", "uid": "u", "odd": 1}]}});
    let unknown = shape::coerce(&mut object, "Widget", "v1", "").unwrap();
    assert_eq!(
        object,
        json!({"metadata": {"name": "a", "annotations": {"a": ""}, "deletionTimestamp": "2026-01-02T03:04:05Z",
            "ownerReferences": [{"apiVersion": "", "kind": "K", "name": "n", "uid": "u"}]}})
    );
    assert_eq!(unknown, ["metadata.odd", "metadata.ownerReferences[0].odd"]);
}

#[test]
fn metadata_of_a_wrong_type_is_refused() {
    let mut object = json!({"metadata": {"labels": {"a": 1}}});
    let refusal = shape::coerce(&mut object, "Widget", "v1", "").unwrap_err();
    assert_eq!(refusal.code(), 400);
    assert_eq!(
        refusal.message(),
        "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field \
         ObjectMeta.labels of type string"
    );
}

proptest! {
    #[test]
    fn nothing_panics(mut object in any_json(), old in any_json(), body in any_json()) {
        let _ = validate::create(&object, &rules());
        let _ = validate::update(&object, &old, &rules());
        if let Ok(options) = Options::parse(&body) {
            let _ = delete::decide(&object, &Rules { graceful: true, ..rules() }, &options, now());
        }
        let _ = update::prepare(&mut object.clone(), &old, &rules(), Endpoint::Main);
        let _ = update::restore_times(&mut object.clone(), &old);
        let _ = create::prepare(&mut object, &rules(), &birth());
    }

    #[test]
    fn normalized_metadata_stays_as_it_is(metadata in any_json()) {
        let mut unknown = Vec::new();
        if let Ok(once) = shape::coerced(&metadata, "", &mut unknown) {
            prop_assert_eq!(shape::coerced(&once, "", &mut Vec::new()), Ok(once));
        }
    }

    #[test]
    fn plausible_metadata_stays_as_it_is(name in any_json(), labels in any_json(), owners in any_json(), list in any_json()) {
        let metadata = json!({"name": name, "labels": labels, "ownerReferences": owners, "finalizers": list});
        if let Ok(once) = shape::coerced(&metadata, "", &mut Vec::new()) {
            prop_assert_eq!(shape::coerced(&once, "", &mut Vec::new()), Ok(once));
        }
    }
}
