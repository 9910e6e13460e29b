//! Garbage collection by owner references: background, foreground and orphans.

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::definition::{define, wait, widget};
use crate::subject::{Place, Subject};

scenarios![
    invalid_owner_references_are_refused,
    dependents_are_deleted_with_their_owner,
    foreground_deletion_removes_dependents_first,
    orphaning_removes_owner_references,
    an_object_with_another_owner_is_kept,
    an_owner_that_never_existed_counts_as_gone,
    custom_resources_can_be_owners_and_dependents,
    a_chain_of_owners_is_deleted_completely,
];

fn reference(owner: &Answer) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner.uid(),
    })
}

async fn make(place: &Place<'_>, name: &str, owners: &[Value]) -> Answer {
    place.post("configmaps", json!({"metadata": {"name": name, "ownerReferences": owners}})).await.ok()
}

async fn gone(place: &Place<'_>, path: &str) {
    wait(&format!("{path} to go"), || async { place.get(path).await.code() == 404 }).await;
}

async fn dependents_are_deleted_with_their_owner(subject: &Subject) {
    let place = subject.namespace("owners-background").await;
    let owner = make(&place, "owner", &[]).await;
    make(&place, "owned", &[reference(&owner)]).await;
    make(&place, "free", &[]).await;
    let deleted = place.delete("configmaps/owner").await.ok();
    assert_eq!(deleted["status"], "Success");
    assert_eq!(place.get("configmaps/owner").await.code(), 404);
    gone(&place, "configmaps/owned").await;
    assert_eq!(place.get("configmaps/free").await.code(), 200);
}

async fn foreground_deletion_removes_dependents_first(subject: &Subject) {
    let place = subject.namespace("owners-foreground").await;
    let owner = make(&place, "owner", &[]).await;
    let mut blocking = reference(&owner);
    blocking["blockOwnerDeletion"] = json!(true);
    let body = json!({"name": "owned", "ownerReferences": [blocking], "finalizers": ["x.example/slow"]});
    place.post("configmaps", json!({"metadata": body})).await.ok();
    let deleted = place.delete("configmaps/owner?propagationPolicy=Foreground").await.ok();
    assert_eq!(deleted["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    wait("the owned one to be dying", || async {
        place.get("configmaps/owned").await.ok()["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    assert_eq!(place.get("configmaps/owner").await.code(), 200);
    place.merge("configmaps/owned", json!({"metadata": {"finalizers": null}})).await.ok();
    gone(&place, "configmaps/owned").await;
    gone(&place, "configmaps/owner").await;
}

async fn orphaning_removes_owner_references(subject: &Subject) {
    let place = subject.namespace("owners-orphan").await;
    let owner = make(&place, "owner", &[]).await;
    let owned = make(&place, "owned", &[reference(&owner)]).await;
    let deleted = place.delete("configmaps/owner?propagationPolicy=Orphan").await.ok();
    assert_eq!(deleted["metadata"]["finalizers"], json!(["orphan"]));
    gone(&place, "configmaps/owner").await;
    let now = place.get("configmaps/owned").await.ok();
    assert_eq!((now.uid(), &now["metadata"]["ownerReferences"]), (owned.uid(), &Value::Null));
}

async fn an_object_with_another_owner_is_kept(subject: &Subject) {
    let place = subject.namespace("owners-two").await;
    let (one, two) = (make(&place, "one", &[]).await, make(&place, "two", &[]).await);
    make(&place, "owned", &[reference(&one), reference(&two)]).await;
    place.delete("configmaps/one").await.ok();
    wait("the reference to go", || async {
        place.get("configmaps/owned").await.ok()["metadata"]["ownerReferences"].as_array().unwrap().len() == 1
    })
    .await;
    place.delete("configmaps/two").await.ok();
    gone(&place, "configmaps/owned").await;
}

async fn an_owner_that_never_existed_counts_as_gone(subject: &Subject) {
    let place = subject.namespace("owners-never").await;
    let never = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "not-there"});
    make(&place, "owned", &[never]).await;
    gone(&place, "configmaps/owned").await;
    // An object of that name with another uid is not the owner.
    let other = make(&place, "other", &[]).await;
    let mut mistaken = reference(&other);
    mistaken["uid"] = json!("another");
    make(&place, "owned", &[mistaken]).await;
    gone(&place, "configmaps/owned").await;
    assert_eq!(place.get("configmaps/other").await.code(), 200);
}

async fn custom_resources_can_be_owners_and_dependents(subject: &Subject) {
    let group = "owning.example";
    let place = define(subject, group, |_| ()).await;
    let core = place.of("v1");
    let owner = place.post("widgets", widget(group, "owner", json!({}))).await.ok();
    make(&core, "owned", &[reference(&owner)]).await;
    let mut owned = widget(group, "owned", json!({}));
    owned["metadata"]["ownerReferences"] = json!([reference(&owner)]);
    place.post("widgets", owned).await.ok();
    place.delete("widgets/owner").await.ok();
    gone(&core, "configmaps/owned").await;
    gone(&place, "widgets/owned").await;
}

async fn a_chain_of_owners_is_deleted_completely(subject: &Subject) {
    let place = subject.namespace("owners-chain").await;
    let mut owner = make(&place, "c0", &[]).await;
    for index in 1..4 {
        owner = make(&place, &format!("c{index}"), &[reference(&owner)]).await;
    }
    place.delete("configmaps/c0").await.ok();
    for index in 0..4 {
        gone(&place, &format!("configmaps/c{index}")).await;
    }
}

async fn invalid_owner_references_are_refused(subject: &Subject) {
    let place = subject.namespace("owners-refused").await;
    let good = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u", "controller": true});
    for field in ["apiVersion", "kind", "name", "uid"] {
        let mut bad = good.clone();
        bad[field] = json!("");
        let answer = place
            .post("configmaps?dryRun=All", json!({"metadata": {"name": "a", "ownerReferences": [bad]}}))
            .await;
        assert_eq!(answer.reason(), "422 Invalid", "{field}: {}", answer.line());
    }
    let mut second = good.clone();
    second["uid"] = json!("v");
    let two = json!({"metadata": {"name": "a", "ownerReferences": [good, second]}});
    let answer = place.post("configmaps?dryRun=All", two).await;
    assert_eq!(answer.reason(), "422 Invalid", "two controllers: {}", answer.line());
}
