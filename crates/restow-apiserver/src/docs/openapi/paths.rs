//! The paths and operations of OpenAPI documents.

use serde_json::{Map, Value, json};

use crate::registry::resource::Resource;

/// Adds the paths of a resource.
pub(super) fn add(paths: &mut Map<String, Value>, resource: &Resource, version: &str, schema: &str) {
    let root = match resource.name.group.as_str() {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    let plural = &resource.name.resource;
    let all = if resource.namespaced {
        paths.insert(
            format!("{root}/{plural}"),
            json!({ "get": operation(resource, version, schema, "list") }),
        );
        format!("{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{root}/{plural}")
    };
    let of = |actions: &[(&str, &str)]| {
        let each = |(method, action): &(&str, &str)| {
            ((*method).to_owned(), operation(resource, version, schema, action))
        };
        Value::Object(actions.iter().map(each).collect())
    };
    let one = format!("{all}/{{name}}");
    for subresource in
        resource.versions.iter().filter(|own| own.name == version).flat_map(|own| &own.subresources)
    {
        let path = format!("{one}/{subresource}");
        paths.insert(path, of(&[("get", "get"), ("put", "put"), ("patch", "patch")]));
    }
    paths.insert(all, of(&[("get", "list"), ("post", "post"), ("delete", "deletecollection")]));
    paths.insert(one, of(&[("get", "get"), ("put", "put"), ("patch", "patch"), ("delete", "delete")]));
}

/// One operation, with the query parameters that clients look for.
fn operation(resource: &Resource, version: &str, schema: &str, action: &str) -> Value {
    let options: &[&str] = match action {
        "post" | "put" | "patch" => &["dryRun", "fieldManager", "fieldValidation"],
        "delete" | "deletecollection" => {
            &["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"]
        }
        "list" => {
            &["allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion"]
        }
        _ => &[],
    };
    let parameter = |name: &&str| json!({ "name": name, "in": "query", "schema": { "type": "string", "uniqueItems": true } });
    let parameters: Vec<Value> = options.iter().map(parameter).collect();
    let content =
        json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } } });
    json!({
        "parameters": parameters,
        "responses": { "200": { "description": "OK", "content": content } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": resource.name.group, "version": version, "kind": resource.kind,
        },
    })
}
