//! Discovery documents.

use serde_json::{Value, json};

use crate::docs::groups::{Contents, Group};
use crate::registry::resource::{Resource, ServedVersion};
use crate::registry::reviews::Review;

/// The verbs of built-in resources, and of custom resources in the order of kube-apiserver.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const CUSTOM_VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const NAMESPACE_VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The versions of the core group.
pub(super) fn versions(core: &Group) -> Value {
    let names: Vec<&str> = core.versions.iter().map(|(name, _)| name.as_str()).collect();
    json!({
        "kind": "APIVersions", "versions": names,
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
    })
}

/// All named groups.
pub(super) fn groups(groups: &[Group]) -> Value {
    let all: Vec<Value> = groups.iter().map(|one| group(one, false)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": all })
}

pub(super) fn group(group: &Group, alone: bool) -> Value {
    let version =
        |name: &String| json!({ "groupVersion": group_version(&group.name, name), "version": name });
    let versions: Vec<Value> = group.versions.iter().map(|(name, _)| version(name)).collect();
    let mut document =
        json!({ "name": group.name, "preferredVersion": versions.first(), "versions": versions });
    if alone {
        document["kind"] = json!("APIGroup");
        document["apiVersion"] = json!("v1");
    }
    document
}

/// The resources of one version.
pub(super) fn resources(contents: &Contents, group: &str, version: &str) -> Value {
    let mut all = Vec::new();
    for (resource, place) in &contents.resources {
        all.extend(resource_entries(resource, &resource.versions[*place]));
    }
    all.extend(contents.reviews.iter().map(|review| {
        json!({
            "name": review.plural, "singularName": review.kind.to_lowercase(), "namespaced": review.namespaced,
            "kind": review.kind, "verbs": ["create"],
        })
    }));
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(group, version),
        "resources": all,
    })
}

fn verbs(resource: &Resource) -> &'static [&'static str] {
    match resource.custom() {
        Some(_) => &CUSTOM_VERBS,
        None if resource.is_namespaces() => &NAMESPACE_VERBS,
        None => &VERBS,
    }
}

fn subresource_verbs(subresource: &str) -> &'static [&'static str] {
    if subresource == "finalize" { &["update"] } else { &SUBRESOURCE_VERBS }
}

fn resource_entries(resource: &Resource, version: &ServedVersion) -> Vec<Value> {
    let mut entry = json!({
        "name": resource.name.resource, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": verbs(resource), "storageVersionHash": resource.hash(),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let mut entries = vec![entry];
    entries.extend(version.subresources.iter().map(|subresource| {
        json!({
            "name": format!("{}/{subresource}", resource.name.resource), "singularName": "",
            "namespaced": resource.namespaced, "kind": resource.kind, "verbs": subresource_verbs(subresource),
        })
    }));
    entries
}

/// Groups with all versions and resources, in one document.
pub(super) fn aggregated(groups: &[Group]) -> Value {
    let items: Vec<Value> = groups.iter().map(aggregated_group).collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn aggregated_group(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|(version, contents)| {
            let kept = contents
                .resources
                .iter()
                .map(|(resource, place)| aggregated_resource(resource, &resource.versions[*place]));
            let reviews = contents.reviews.iter().map(|review| aggregated_review(review, version));
            let resources: Vec<Value> = kept.chain(reviews).collect();
            json!({ "version": version, "resources": resources, "freshness": "Current" })
        })
        .collect();
    let metadata = if group.name.is_empty() { json!({}) } else { json!({ "name": group.name }) };
    json!({ "metadata": metadata, "versions": versions })
}

fn scope(namespaced: bool) -> &'static str {
    if namespaced { "Namespaced" } else { "Cluster" }
}

fn aggregated_resource(resource: &Resource, version: &ServedVersion) -> Value {
    let kind = json!({ "group": resource.name.group, "version": version.name, "kind": resource.kind });
    let mut entry = json!({
        "resource": resource.name.resource, "responseKind": kind, "scope": scope(resource.namespaced),
        "singularResource": resource.singular, "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let below: Vec<Value> = version
        .subresources
        .iter()
        .map(|subresource| {
            json!({
                "subresource": subresource, "responseKind": kind, "verbs": subresource_verbs(subresource),
            })
        })
        .collect();
    if !below.is_empty() {
        entry["subresources"] = json!(below);
    }
    entry
}

fn aggregated_review(review: &Review, version: &str) -> Value {
    json!({
        "resource": review.plural, "scope": scope(review.namespaced),
        "responseKind": { "group": review.group, "version": version, "kind": review.kind },
        "singularResource": review.kind.to_lowercase(), "verbs": ["create"],
    })
}

/// The paths that are served.
pub(super) fn paths(groups: &[Group]) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for group in groups.iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|(version, _)| format!("/apis/{}/{version}", group.name)));
    }
    let others = ["/healthz", "/livez", "/metrics", "/openapi/v3", "/readyz", "/version"];
    paths.extend(others.map(str::to_owned));
    json!({ "paths": paths })
}
