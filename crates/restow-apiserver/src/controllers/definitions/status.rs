//! The status of a definition: its accepted names, and whether it is served.

use kube::Client;
use serde_json::Value;

use crate::registry::definition::conditions::{accept_names, established, is_true, set};

/// The definition with the status it should have, given the other definitions.
pub(super) fn settled<'a>(definition: &Value, others: impl Iterator<Item = &'a Value>) -> Value {
    let mut settled = definition.clone();
    let group = &definition["spec"]["group"];
    let others: Vec<Value> = others.filter(|other| other["spec"]["group"] == *group).cloned().collect();
    let (names, conditions) = accept_names(definition, &others);
    settled["status"]["acceptedNames"] = names;
    let now = restow_clock::now();
    for condition in &conditions {
        set(&mut settled, condition, now);
    }
    if is_true(&settled, "NamesAccepted") && !is_true(&settled, "Established") {
        set(&mut settled, &established(), now);
    }
    settled
}

/// A definition that has objects, with the status that it had or should have had.
pub(super) fn accepted(definition: &Value) -> Value {
    let mut accepted = definition.clone();
    if !is_accepted(definition) {
        accepted["status"]["acceptedNames"] = definition["spec"]["names"].clone();
        set(&mut accepted, &established(), restow_clock::now());
    }
    accepted
}

/// Whether its names are accepted, so that it is served.
pub(super) fn is_accepted(definition: &Value) -> bool {
    is_true(definition, "Established")
}

/// Writes the status, conditioned on what was read. Returns whether it is written; after a conflict the controller
/// decides again.
pub(super) async fn write(client: &Client, definition: &Value) -> bool {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}/status");
    let request = http::Request::put(path).header(http::header::CONTENT_TYPE, "application/json");
    let Ok(request) = request.body(definition.to_string().into_bytes()) else { return true };
    match client.request::<Value>(request).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => true,
        Err(error) => {
            tracing::warn!(%name, "could not update the status of a CustomResourceDefinition: {error}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(plural: &str, kind: &str) -> Value {
        let names = json!({
            "plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List"),
        });
        json!({"metadata": {"name": plural}, "spec": {"group": "example.com", "names": names}})
    }

    #[test]
    fn names_that_nobody_else_uses_are_accepted() {
        let first = settled(&definition("widgets", "Widget"), [].iter());
        assert!(is_accepted(&first));
        assert_eq!(first["status"]["acceptedNames"]["plural"], "widgets");
        assert_eq!(settled(&first, [].iter()), first);
    }

    #[test]
    fn names_that_another_definition_uses_are_not_accepted() {
        let taken = settled(&definition("widgets", "Widget"), [].iter());
        for (plural, kind, accepted) in
            [("gadgets", "Gadget", true), ("gadgets", "Widget", false), ("widget", "Gadget", false)]
        {
            let found = settled(&definition(plural, kind), [&taken].into_iter());
            assert_eq!(is_accepted(&found), accepted, "{plural} {kind}");
        }
        let mut elsewhere = definition("widgets", "Widget");
        elsewhere["spec"]["group"] = json!("other.example");
        assert!(is_accepted(&settled(&elsewhere, [&taken].into_iter())));
    }
}
