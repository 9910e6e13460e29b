//! Leases, which leader election and identities depend on.

use serde_json::json;

use crate::subject::Subject;

scenarios![only_one_client_acquires_a_lease, lease_times_have_microseconds, a_lease_is_found_by_its_label,];

async fn only_one_client_acquires_a_lease(subject: &Subject) {
    let place = subject.namespace("lease-taken").await.of("coordination.k8s.io/v1");
    let spec =
        |holder: &str| json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 1});
    let made = place.post("leases", json!({"metadata": {"name": "a"}, "spec": spec("nobody")})).await.ok();
    let take = |holder: &str| {
        let mut lease = made.body.clone();
        lease["spec"] = spec(holder);
        let place = place.clone();
        async move { place.put("leases/a", lease).await.code() }
    };
    let mut codes = futures::future::join_all(["a", "b", "c", "d"].map(take)).await;
    codes.sort_unstable();
    assert_eq!(codes, [200, 409, 409, 409]);
}

async fn lease_times_have_microseconds(subject: &Subject) {
    let place = subject.namespace("lease-times").await.of("coordination.k8s.io/v1");
    let time = "2026-01-02T03:04:05.678901Z";
    let lease = json!({"metadata": {"name": "a"}, "spec": {"renewTime": time, "acquireTime": time}});
    place.post("leases", lease).await.ok();
    assert_eq!(place.get("leases/a").await.ok()["spec"], json!({"renewTime": time, "acquireTime": time}));
}

async fn a_lease_is_found_by_its_label(subject: &Subject) {
    let place = subject.namespace("lease-label").await.of("coordination.k8s.io/v1");
    for (name, labels) in [("a", json!({"apiserver.kubernetes.io/identity": "x"})), ("b", json!({}))] {
        place.post("leases", json!({"metadata": {"name": name, "labels": labels}})).await.ok();
    }
    let list = place.get("leases?labelSelector=apiserver.kubernetes.io/identity%3Dx").await.ok();
    assert_eq!((list.names().as_str(), &list["kind"]), ("a", &json!("LeaseList")));
}
