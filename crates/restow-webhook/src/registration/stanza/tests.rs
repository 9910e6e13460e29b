//! Tables of CRDs, who manages them, and what is changed.

use super::*;
use crate::certificates::two_bundles as bundles;

fn endpoint() -> Endpoint {
    Endpoint::Service {
        namespace: "restow-system".to_owned(),
        name: "webhook".to_owned(),
        port: 443,
        path: "/convert".to_owned(),
    }
}

fn crd(extra: Value) -> CustomResourceDefinition {
    let mut crd = json!({
        "metadata": {"name": "widgets.example.com", "uid": "u", "resourceVersion": "7"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true}],
        },
    });
    json_patch::merge(&mut crd, &extra);
    serde_json::from_value(crd).unwrap()
}

fn converted(config: Value) -> Value {
    json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {
        "clientConfig": config, "conversionReviewVersions": ["v1"],
    }}}})
}

fn ours(bundle: Option<&str>) -> Value {
    let mut config = endpoint().for_crd(&crd(json!({}))).client_config();
    config["caBundle"] = json!(bundle.map(|bundle| ByteString(bundle.as_bytes().to_vec())));
    let mut crd = converted(config);
    crd["metadata"] = json!({"annotations": {ANNOUNCED: "restow-system/webhook"}});
    crd
}

fn owned(manager: &str, fields: Value) -> Value {
    let fields = json!({"f:spec": {"f:conversion": {"f:webhook": {"f:clientConfig": fields}}}});
    json!({"metadata": {"managedFields": [
        {"manager": manager, "operation": "Update", "apiVersion": "apiextensions.k8s.io/v1", "fieldsType": "FieldsV1", "fieldsV1": fields},
    ]}})
}

fn merged(parts: &[Value]) -> CustomResourceDefinition {
    let mut all = json!({});
    parts.iter().for_each(|part| json_patch::merge(&mut all, part));
    crd(all)
}

/// Applies a merge patch, as the API server does.
fn patched(crd: &CustomResourceDefinition, patch: &Value) -> CustomResourceDefinition {
    let mut value = serde_json::to_value(crd).unwrap();
    json_patch::merge(&mut value, patch);
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_address_says_whose_webhook_converts() {
    let service = |name: &str| {
        converted(json!({"service": {"namespace": "restow-system", "name": name, "port": 8443}}))
    };
    for (crd, expected) in [
        (crd(json!({})), Standing::Unconverted),
        (crd(json!({"spec": {"conversion": {"strategy": "None"}}})), Standing::Unconverted),
        (crd(service("webhook")), Standing::Ours),
        (crd(service("other")), Standing::Foreign("the Service restow-system/other".to_owned())),
        (
            crd(converted(json!({"url": "https://example.com/"}))),
            Standing::Foreign("https://example.com/".to_owned()),
        ),
    ] {
        assert_eq!(standing(&crd, &endpoint()), expected);
    }
    let url = Endpoint::url("https://127.0.0.1:8443/convert").unwrap();
    for (text, expected) in
        [("https://127.0.0.1:8443/other", true), ("https://127.0.0.1:9443/convert", false)]
    {
        let crd = crd(converted(json!({"url": text})));
        assert_eq!(standing(&crd, &url) == Standing::Ours, expected, "{text}");
    }
}

#[test]
fn a_bundle_that_somebody_else_manages_is_left_alone() {
    let (old, new) = bundles();
    let injected = json!({"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "ns/cert"}}});
    for (what, parts, expected) in [
        ("nobody", vec![ours(Some(&old))], None),
        ("the webhook", vec![ours(Some(&old)), owned(FIELD_MANAGER, json!({"f:caBundle": {}}))], None),
        (
            "the webhook, which created the CRD",
            vec![ours(Some(&old)), owned(CREATOR, json!({"f:caBundle": {}}))],
            None,
        ),
        (
            "argocd",
            vec![ours(Some(&old)), owned("argocd", json!({"f:caBundle": {}}))],
            Some("the field manager argocd"),
        ),
        (
            "argocd, but not the bundle",
            vec![ours(Some(&old)), owned("argocd", json!({"f:service": {"f:name": {}}}))],
            None,
        ),
        (
            "cert-manager",
            vec![ours(Some(&old)), injected],
            Some("cert-manager (annotation cert-manager.io/inject-ca-from)"),
        ),
    ] {
        let crd = merged(&parts);
        assert_eq!(bundle_manager(&crd).as_deref(), expected, "{what}");
        assert_eq!(
            matches!(update(&crd, &endpoint(), &new), Change::LeftAlone(_)),
            expected.is_some(),
            "{what}"
        );
        assert_eq!(update(&crd, &endpoint(), &old), Change::None, "{what}: it is right already");
    }
}

#[test]
fn an_update_changes_the_bundle_and_has_a_precondition() {
    let (old, new) = bundles();
    let crd = crd(ours(Some(&old)));
    let Change::Patch(patch) = update(&crd, &endpoint(), &new) else { panic!("it must change") };
    assert_eq!(
        (&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]),
        (&json!("u"), &json!("7"))
    );
    let after = patched(&crd, &patch);
    assert_eq!(trust(&after, &endpoint()).unwrap().authorities, fingerprints(new.as_bytes()));
    assert_eq!(update(&after, &endpoint(), &new), Change::None);
    assert_eq!((&after.spec.versions, &after.spec.names), (&crd.spec.versions, &crd.spec.names));
}

#[test]
fn a_port_and_a_path_that_somebody_else_manages_stay() {
    let (old, _) = bundles();
    let config = json!({"service": {"namespace": "restow-system", "name": "webhook", "port": 9443, "path": "/theirs"}});
    let of = |crd: CustomResourceDefinition| {
        let config = client_config(&crd).unwrap().clone();
        let service = config.service.unwrap();
        (service.port.unwrap(), service.path.unwrap(), config.ca_bundle.is_some())
    };
    let theirs = owned("kubectl-client-side-apply", json!({"f:service": {"f:port": {}, "f:path": {}}}));
    let crd = merged(&[converted(config.clone()), theirs]);
    let Change::Patch(patch) = update(&crd, &endpoint(), &old) else { panic!("it has no caBundle") };
    assert_eq!(of(patched(&crd, &patch)), (9443, "/theirs".to_owned(), true));
    let crd = merged(&[
        converted(config),
        owned(FIELD_MANAGER, json!({"f:service": {"f:port": {}, "f:path": {}}})),
    ]);
    let Change::Patch(patch) = update(&crd, &endpoint(), &old) else { panic!("port and path are ours") };
    assert_eq!(of(patched(&crd, &patch)), (443, "/convert/example.com/Widget".to_owned(), true));
}

#[test]
fn a_crd_is_announced_before_it_is_registered() {
    let (old, _) = bundles();
    let crd = crd(json!({}));
    assert_eq!(trust(&crd, &endpoint()), None, "it does not call the webhook");
    let announced = patched(&crd, &announce(&crd, &endpoint()));
    assert_eq!(standing(&announced, &endpoint()), Standing::Unconverted);
    assert_eq!(trust(&announced, &endpoint()).unwrap().authorities, BTreeSet::new(), "it trusts nobody yet");
    let registered = patched(&announced, &register(&announced, &endpoint(), &old));
    assert_eq!(standing(&registered, &endpoint()), Standing::Ours);
    assert_eq!(trust(&registered, &endpoint()).unwrap().authorities, fingerprints(old.as_bytes()));
    assert_eq!(
        registered.spec.conversion.as_ref().unwrap().webhook.as_ref().unwrap().conversion_review_versions,
        REVIEW_VERSIONS
    );
    let removed = patched(&registered, &unregister(&registered));
    assert_eq!(
        (standing(&removed, &endpoint()), trust(&removed, &endpoint())),
        (Standing::Unconverted, None)
    );
}

#[test]
fn only_a_webhook_that_restow_registered_is_removed() {
    let (old, _) = bundles();
    let theirs = converted(json!({"service": {"namespace": "theirs", "name": "webhook"}}));
    let announced = json!({"metadata": {"annotations": {ANNOUNCED: "restow-system/webhook"}}});
    let unannounced = {
        let mut crd = ours(Some(&old));
        crd["metadata"] = json!({});
        crd
    };
    for (what, crd, expected) in [
        ("ours", crd(ours(Some(&old))), true),
        ("ours, by hand", crd(unannounced), false),
        ("announced only", crd(announced.clone()), false),
        ("theirs, since then", merged(&[announced.clone(), theirs.clone()]), false),
        ("theirs", crd(theirs), false),
        ("never announced", crd(json!({})), false),
    ] {
        assert_eq!(registrant(&crd).is_some(), expected, "{what}");
        if expected {
            let removed = patched(&crd, &unregister(&crd));
            assert_eq!(standing(&removed, &endpoint()), Standing::Unconverted, "{what}");
            assert_eq!(trust(&removed, &endpoint()), None, "{what}: no rotation waits for it");
            assert!(is_opted_out(&removed) && !is_opted_out(&crd), "{what}");
        }
    }
}

#[test]
fn an_announcement_is_withdrawn_and_the_stanza_stays() {
    let (old, _) = bundles();
    let announced = crd(json!({"metadata": {"annotations": {ANNOUNCED: "restow-system/webhook"}}}));
    let patch = withdraw(&announced, &endpoint()).unwrap();
    assert_eq!(patch.get("spec"), None);
    assert_eq!(trust(&patched(&announced, &patch), &endpoint()), None, "no rotation waits for it");
    assert!(!is_opted_out(&patched(&announced, &patch)));
    assert_eq!(withdraw(&crd(ours(Some(&old))), &endpoint()), None);
    assert_eq!(withdraw(&crd(json!({})), &endpoint()), None);
}

#[test]
fn the_authority_before_stays_trusted_if_somebody_else_replaces_it() {
    let (old, _) = bundles();
    let (new, _) = bundles();
    let now = Timestamp::UNIX_EPOCH;
    let kept = |foreign| Bundle { pem: new.clone(), authorities: fingerprints(new.as_bytes()), foreign };
    let crd = crd(ours(Some(&old)));
    assert_eq!(trusted(&crd, &kept(false), now), new, "the Secret has all that count");
    let both = trusted(&crd, &kept(true), now);
    let expected = fingerprints(format!("{old}{new}").as_bytes());
    assert_eq!(fingerprints(both.as_bytes()), expected);
    let Change::Patch(patch) = update(&crd, &endpoint(), &both) else { panic!("nothing would be changed") };
    let after = patched(&crd, &patch);
    assert_eq!(trust(&after, &endpoint()).unwrap().authorities, expected);
    assert_eq!(
        update(&after, &endpoint(), &trusted(&after, &kept(true), now)),
        Change::None,
        "it is done once"
    );
    let late = now + jiff::SignedDuration::from_hours(24 * 400);
    assert_eq!(
        fingerprints(trusted(&after, &kept(true), late).as_bytes()),
        fingerprints(new.as_bytes()),
        "expired"
    );
}
