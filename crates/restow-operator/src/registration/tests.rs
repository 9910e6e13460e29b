use serde_json::{Value, json};

use super::*;

fn crd(changes: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
    let mut object = json!({
        "metadata": {"name": "pages.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Page", "plural": "pages"},
            "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v1beta1", "served": true, "storage": false}],
        },
    });
    changes(&mut object);
    serde_json::from_value(object).unwrap()
}

/// The same, stored as v1beta1.
fn older(changes: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
    crd(|object| {
        object["spec"]["versions"][0]["storage"] = json!(false);
        object["spec"]["versions"][1]["storage"] = json!(true);
        object["status"] = json!({"storedVersions": ["v1beta1"]});
        changes(object);
    })
}

fn webhook(bundle: Option<&str>) -> Value {
    let mut client = json!({"service": {"namespace": "n", "name": "s"}});
    if let Some(bundle) = bundle {
        client["caBundle"] = json!(bundle);
    }
    json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}})
}

fn planned(found: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Plan {
    plan(Some(found), wanted, Conversion::AsDefined, false).unwrap()
}

#[test]
fn a_missing_crd_is_created_and_an_equal_one_is_left() {
    let wanted = crd(|_| {});
    assert_eq!(plan(None, &wanted, Conversion::AsDefined, false), Ok(Plan::Create));
    let found = crd(|object| {
        object["metadata"]["resourceVersion"] = json!("7");
        object["metadata"]["labels"] = json!({"a": "b"});
        object["spec"]["names"]["singular"] = json!("page");
        object["spec"]["names"]["listKind"] = json!("PageList");
        object["spec"]["conversion"] = webhook(Some("Yg=="));
        object["status"] = json!({"storedVersions": ["v1"]});
    });
    assert_eq!(planned(&found, &wanted), Plan::Leave);
}

#[test]
fn a_patch_has_only_what_differs_so_what_others_wrote_stays() {
    let found = crd(|object| {
        object["metadata"]["labels"] = json!({"a": "b", "c": "d"});
        object["spec"]["names"]["shortNames"] = json!(["pg"]);
        object["spec"]["conversion"] = webhook(Some("Yg=="));
        object["status"] = json!({"storedVersions": ["v1"]});
    });
    let wanted = crd(|object| {
        object["metadata"]["labels"] = json!({"c": "e"});
        object["spec"]["names"]["categories"] = json!(["all"]);
        object["spec"]["conversion"] = webhook(None);
    });
    let names = json!({"kind": "Page", "plural": "pages", "categories": ["all"], "shortNames": null});
    let expected = json!({"metadata": {"labels": {"c": "e"}}, "spec": {"names": names}});
    assert_eq!(planned(&found, &wanted), Plan::Change(expected), "the CA bundle is not touched");
}

#[test]
fn new_versions_come_first_and_the_storage_version_in_a_write_of_its_own() {
    let found = crd(|object| {
        object["spec"]["versions"] = json!([{"name": "v1beta1", "served": true, "storage": true}]);
        object["status"] = json!({"storedVersions": ["v1beta1"]});
    });
    let wanted = crd(|_| {});
    let both = older(|_| {});
    let versions = json!({"spec": {"versions": both.spec.versions}});
    assert_eq!(planned(&found, &wanted), Plan::Change(versions), "v1 is served, and v1beta1 is stored");
    let store = Plan::Store(json!({"spec": {"versions": wanted.spec.versions}}));
    assert_eq!(planned(&both, &wanted), store);
    // A server that stores the definition in other words.
    let reworded = older(|object| object["spec"]["versions"][0]["deprecated"] = json!(false));
    assert!(matches!(planned(&reworded, &wanted), Plan::Change(_)));
    assert_eq!(plan(Some(&reworded), &wanted, Conversion::AsDefined, true), Ok(store));
}

#[test]
fn a_crd_that_does_not_call_the_webhook_is_changed_before_its_storage_version() {
    let (found, wanted) = (older(|_| {}), crd(|_| {}));
    for (conversion, expected) in [
        (Conversion::NotRegistered, Plan::Change(json!({}))),
        (Conversion::Registered, Plan::Store(json!({"spec": {"versions": wanted.spec.versions}}))),
    ] {
        assert_eq!(plan(Some(&found), &wanted, conversion, false), Ok(expected));
    }
    // The stanza is the webhook's.
    let found = crd(|object| object["spec"]["conversion"] = webhook(Some("Yg==")));
    let wanted = crd(|object| object["spec"]["conversion"] = json!({"strategy": "None"}));
    assert_eq!(plan(Some(&found), &wanted, Conversion::Registered, false), Ok(Plan::Leave));
}

#[test]
fn a_version_that_may_still_be_stored_is_not_dropped() {
    let found = crd(|object| object["status"] = json!({"storedVersions": ["v1alpha1", "v1"]}));
    let refused = plan(Some(&found), &crd(|_| {}), Conversion::AsDefined, false).unwrap_err().to_string();
    assert!(refused.contains("stored as v1alpha1") && refused.contains("has only v1"), "{refused}");
    // The storage version counts before it is in storedVersions.
    let found = older(|object| object["status"] = json!(null));
    let wanted =
        crd(|object| object["spec"]["versions"] = json!([{"name": "v1", "served": true, "storage": true}]));
    let refused = plan(Some(&found), &wanted, Conversion::AsDefined, false);
    assert!(matches!(refused, Err(RegistrationError::StillStored { .. })), "{refused:?}");
    let found = crd(|object| object["spec"]["scope"] = json!("Cluster"));
    let refused = plan(Some(&found), &crd(|_| {}), Conversion::AsDefined, false);
    assert!(matches!(refused, Err(RegistrationError::AnotherScope { .. })), "{refused:?}");
}
