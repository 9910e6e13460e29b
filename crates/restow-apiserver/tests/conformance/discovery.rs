//! Discovery, version, health and OpenAPI.

use serde_json::{Value, json};

use crate::subject::{ApiRequest, Place, Subject};

scenarios![
    discovery_lists_versions_and_groups,
    discovery_lists_the_resources_of_groups,
    resources_have_storage_version_hashes,
    version_and_health_are_served,
    openapi_is_served,
    discovery_lists_the_resources_of_the_core_group,
    aggregated_discovery_is_served,
    unknown_groups_are_not_found,
    custom_resources_are_discovered,
];

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn discovery_lists_versions_and_groups(subject: &Subject) {
    let place = subject.place("none");
    let core = place.get("/api").await.ok();
    assert_eq!((&core["kind"], &core["versions"]), (&json!("APIVersions"), &json!(["v1"])));
    let groups = place.get("/apis").await.ok();
    assert_eq!((&groups["kind"], &groups["apiVersion"]), (&json!("APIGroupList"), &json!("v1")));
    for (name, version) in [
        ("apps", "v1"),
        ("coordination.k8s.io", "v1"),
        ("rbac.authorization.k8s.io", "v1"),
        ("apiextensions.k8s.io", "v1"),
        ("apiregistration.k8s.io", "v1"),
        ("events.k8s.io", "v1"),
        ("authorization.k8s.io", "v1"),
        ("authentication.k8s.io", "v1"),
        ("flowcontrol.apiserver.k8s.io", "v1"),
    ] {
        let group = groups["groups"].as_array().unwrap().iter().find(|group| group["name"] == name);
        let group = group.unwrap_or_else(|| panic!("no group {name}"));
        let both = json!({"groupVersion": format!("{name}/{version}"), "version": version});
        assert_eq!(group["preferredVersion"], both);
        assert!(group["versions"].as_array().unwrap().contains(&both));
        let alone = place.get(&format!("/apis/{name}")).await.ok();
        assert_eq!((&alone["kind"], &alone["preferredVersion"]), (&json!("APIGroup"), &both));
    }
}

/// A resource in discovery, without its hash and with sorted verbs.
async fn resource(place: &Place<'_>, path: &str, name: &str) -> Value {
    let list = place.get(path).await.ok();
    assert_eq!(list["kind"], "APIResourceList");
    let found =
        list["resources"].as_array().unwrap().iter().find(|resource| resource["name"] == name).cloned();
    let mut found = found.unwrap_or_else(|| panic!("no {name} in {path}"));
    found.as_object_mut().unwrap().remove("storageVersionHash");
    found
}

async fn discovery_lists_the_resources_of_the_core_group(subject: &Subject) {
    let place = subject.place("none");
    let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    for (name, expected) in [
        (
            "configmaps",
            json!({"name": "configmaps", "singularName": "configmap", "namespaced": true, "kind": "ConfigMap", "verbs": all, "shortNames": ["cm"]}),
        ),
        (
            "secrets",
            json!({"name": "secrets", "singularName": "secret", "namespaced": true, "kind": "Secret", "verbs": all}),
        ),
        (
            "pods",
            json!({"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": all, "shortNames": ["po"], "categories": ["all"]}),
        ),
        (
            "namespaces",
            json!({"name": "namespaces", "singularName": "namespace", "namespaced": false, "kind": "Namespace", "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"], "shortNames": ["ns"]}),
        ),
        (
            "namespaces/status",
            json!({"name": "namespaces/status", "singularName": "", "namespaced": false, "kind": "Namespace", "verbs": ["get", "patch", "update"]}),
        ),
        (
            "serviceaccounts",
            json!({"name": "serviceaccounts", "singularName": "serviceaccount", "namespaced": true, "kind": "ServiceAccount", "verbs": all, "shortNames": ["sa"]}),
        ),
        (
            "events",
            json!({"name": "events", "singularName": "event", "namespaced": true, "kind": "Event", "verbs": all, "shortNames": ["ev"]}),
        ),
    ] {
        assert_eq!(resource(&place, "/api/v1", name).await, expected);
    }
}

async fn discovery_lists_the_resources_of_groups(subject: &Subject) {
    let place = subject.place("none");
    let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    for (path, name, expected) in [
        (
            "/apis/apps/v1",
            "deployments",
            json!({"name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment", "verbs": all, "shortNames": ["deploy"], "categories": ["all"]}),
        ),
        (
            "/apis/apps/v1",
            "deployments/status",
            json!({"name": "deployments/status", "singularName": "", "namespaced": true, "kind": "Deployment", "verbs": ["get", "patch", "update"]}),
        ),
        (
            "/apis/coordination.k8s.io/v1",
            "leases",
            json!({"name": "leases", "singularName": "lease", "namespaced": true, "kind": "Lease", "verbs": all}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1",
            "clusterroles",
            json!({"name": "clusterroles", "singularName": "clusterrole", "namespaced": false, "kind": "ClusterRole", "verbs": all}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1",
            "customresourcedefinitions",
            json!({"name": "customresourcedefinitions", "singularName": "customresourcedefinition", "namespaced": false, "kind": "CustomResourceDefinition", "verbs": all, "shortNames": ["crd", "crds"], "categories": ["api-extensions"]}),
        ),
        (
            "/apis/authorization.k8s.io/v1",
            "selfsubjectaccessreviews",
            json!({"name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview", "namespaced": false, "kind": "SelfSubjectAccessReview", "verbs": ["create"]}),
        ),
    ] {
        assert_eq!(resource(&place, path, name).await, expected);
    }
}

async fn resources_have_storage_version_hashes(subject: &Subject) {
    let place = subject.place("none");
    // The first 8 bytes of the SHA-256 of group/version/kind.
    for (path, name, expected) in [
        ("/api/v1", "configmaps", "qFsyl6wFWjQ="),
        ("/api/v1", "secrets", "S6u1pOWzb84="),
        ("/apis/apps/v1", "deployments", "8aSe+NMegvE="),
        ("/apis/coordination.k8s.io/v1", "leases", "gqkMMb/YqFM="),
    ] {
        let list = place.get(path).await.ok();
        let found =
            list["resources"].as_array().unwrap().iter().find(|resource| resource["name"] == name).unwrap();
        assert_eq!(found["storageVersionHash"], expected, "{name}");
    }
}

async fn aggregated_discovery_is_served(subject: &Subject) {
    let place = subject.place("none");
    for (path, group, resource) in [("/api", "", "configmaps"), ("/apis", "apps", "deployments")] {
        let list = place.send(ApiRequest::get(path).header("accept", AGGREGATED)).await.ok();
        assert_eq!(list.header("content-type"), AGGREGATED);
        assert_eq!(
            (&list["kind"], &list["apiVersion"]),
            (&json!("APIGroupDiscoveryList"), &json!("apidiscovery.k8s.io/v2"))
        );
        let item = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|item| item["metadata"]["name"].as_str().unwrap_or_default() == group)
            .unwrap();
        let version = &item["versions"][0];
        assert_eq!((&version["version"], &version["freshness"]), (&json!("v1"), &json!("Current")));
        let found = version["resources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|found| found["resource"] == resource)
            .unwrap();
        assert_eq!(found["scope"], "Namespaced");
        assert_eq!(
            found["responseKind"]["kind"],
            if resource == "configmaps" { "ConfigMap" } else { "Deployment" }
        );
        let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        assert_eq!(found["verbs"], json!(verbs));
        if resource == "deployments" {
            let mut subresources: Vec<&str> = found["subresources"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|sub| sub["subresource"].as_str())
                .collect();
            subresources.sort_unstable();
            assert!(subresources.contains(&"status"), "{subresources:?}");
        }
    }
}

async fn version_and_health_are_served(subject: &Subject) {
    let place = subject.place("none");
    let version = place.get("/version").await.ok();
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("36")));
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.36."));
    for path in ["/healthz", "/livez", "/readyz", "/livez/ping"] {
        let answer = place.get(path).await;
        assert_eq!((answer.code(), &answer.body), (200, &json!("ok")), "{path}");
    }
}

async fn openapi_is_served(subject: &Subject) {
    let place = subject.place("none");
    let index = place.get("/openapi/v3").await.ok();
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    assert!(url.starts_with("/openapi/v3/api/v1?hash="), "{url}");
    let document = place.get(&url).await.ok();
    let schema = &document["components"]["schemas"]["io.k8s.api.core.v1.ConfigMap"];
    let kind = json!([{"group": "", "kind": "ConfigMap", "version": "v1"}]);
    assert_eq!(schema["x-kubernetes-group-version-kind"], kind);
    assert!(document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"].is_object());
    assert_eq!(place.get("/openapi/v3/apis/none.example/v1").await.code(), 404);
}

async fn unknown_groups_are_not_found(subject: &Subject) {
    let place = subject.place("none");
    for path in ["/apis/none.example", "/apis/none.example/v1"] {
        let answer = place.get(path).await;
        assert_eq!(answer.line(), "404 404 page not found", "{path}");
    }
    let answer = place.get("/apis/apps/v9").await;
    assert_eq!(answer.line(), "404 NotFound: the server could not find the requested resource");
}

async fn custom_resources_are_discovered(subject: &Subject) {
    let definition = crate::definition::define(subject, "discovered.example", |definition| {
        let names = &mut definition["spec"]["names"];
        names["shortNames"] = json!(["wd"]);
        names["categories"] = json!(["all"]);
    });
    let place = definition.await;
    let all = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    let list = place.get("/apis/discovered.example/v1").await.ok();
    let expected = json!([
        {"name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": all,
            "shortNames": ["wd"], "categories": ["all"], "storageVersionHash": hash("discovered.example/v1/Widget")},
        {"name": "widgets/status", "singularName": "", "namespaced": true, "kind": "Widget",
            "verbs": ["get", "patch", "update"]},
    ]);
    assert_eq!(list["resources"], expected);
    let group = place.get("/apis/discovered.example").await.ok();
    assert_eq!(group["preferredVersion"], json!({"groupVersion": "discovered.example/v1", "version": "v1"}));
    place
        .delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.discovered.example")
        .await
        .ok();
    crate::definition::wait("the group to go", || async {
        place.get("/apis/discovered.example/v1").await.line() == "404 404 page not found"
    })
    .await;
}

/// base64 of the first 8 bytes of the SHA-256.
fn hash(text: &str) -> String {
    use base64::Engine as _;
    use sha2::Digest as _;
    base64::prelude::BASE64_STANDARD.encode(&sha2::Sha256::digest(text)[..8])
}
