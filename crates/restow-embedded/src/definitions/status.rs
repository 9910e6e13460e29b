//! What the status of a definition says: whether its names are its own, and whether it is served.

use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::meta::{is_deleting, time};

const ACCEPTED: &str = "NamesAccepted";
const ESTABLISHED: &str = "Established";

/// The definition as its status should be, given the others.
pub(super) fn settled<'a>(definition: &Value, others: impl Iterator<Item = &'a Value> + Clone) -> Value {
    let mut settled = definition.clone();
    if is_deleting(definition) {
        return settled;
    }
    let names = &definition["spec"]["names"];
    let conflict = conflict(definition, others);
    let now = time(Timestamp::now());
    match conflict {
        None => {
            settled["status"]["acceptedNames"] = names.clone();
            set(&mut settled, ACCEPTED, "True", "NoConflicts", "no conflicts found", &now);
            set(
                &mut settled,
                ESTABLISHED,
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
                &now,
            );
        }
        Some(taken) => {
            let message = format!("{taken:?} is already in use");
            set(&mut settled, ACCEPTED, "False", "Conflict", &message, &now);
            if condition(&settled, ESTABLISHED) != Some("True") {
                set(&mut settled, ESTABLISHED, "False", "NotAccepted", "not all names are accepted", &now);
            }
        }
    }
    settled
}

/// Whether its names were accepted once.
pub(super) fn is_accepted(definition: &Value) -> bool {
    condition(definition, ESTABLISHED) == Some("True")
}

/// Whether nothing is left to be said of it.
pub(super) fn is_settled(definition: &Value) -> bool {
    condition(definition, ACCEPTED).is_some() && condition(definition, ESTABLISHED).is_some()
}

fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = definition["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

fn set(definition: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    if !definition["status"]["conditions"].is_array() {
        definition["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = definition["status"]["conditions"].as_array_mut() else { return };
    let found = conditions.iter_mut().find(|condition| condition["type"] == kind);
    let since = match &found {
        Some(condition) if condition["status"] == status => condition["lastTransitionTime"].clone(),
        _ => json!(now),
    };
    let mut condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    match found {
        // What else was told of it stays.
        Some(before)
            if before["status"] == condition["status"] && before["reason"] == condition["reason"] => {}
        Some(before) => *before = condition.take(),
        None => conditions.push(condition),
    }
}

/// A name of a definition that another one of its group has already.
fn conflict<'a>(definition: &Value, others: impl Iterator<Item = &'a Value> + Clone) -> Option<String> {
    let spec = &definition["spec"];
    let mut taken_names = Vec::new();
    let mut taken_kinds = Vec::new();
    for other in others.filter(|other| other["spec"]["group"] == spec["group"]) {
        let accepted = &other["status"]["acceptedNames"];
        taken_names.extend(resource_names(accepted));
        taken_kinds.extend(kinds(accepted));
    }
    let names = resource_names(&spec["names"]);
    let clash = names.into_iter().find(|name| taken_names.contains(name));
    clash.or_else(|| kinds(&spec["names"]).into_iter().find(|kind| taken_kinds.contains(kind)))
}

fn resource_names(names: &Value) -> Vec<String> {
    let short = names["shortNames"].as_array().map(Vec::as_slice).unwrap_or_default();
    let all = [&names["plural"], &names["singular"]].into_iter().chain(short);
    all.filter_map(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn kinds(names: &Value) -> Vec<String> {
    let all = [&names["kind"], &names["listKind"]].into_iter();
    all.filter_map(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Writes the status, on condition of what was read; who is slower decides anew from what is there then.
pub(super) async fn write(client: &Client, definition: &Value) {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}/status");
    let request = http::Request::put(path).header(http::header::CONTENT_TYPE, "application/json");
    let Ok(request) = request.body(definition.to_string().into_bytes()) else { return };
    match client.request::<Value>(request).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => tracing::warn!(%name, "the status of a definition is not written: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str) -> Value {
        let names = json!({
            "plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List"),
        });
        json!({"metadata": {"name": plural}, "spec": {"group": "example.com", "names": names}})
    }

    #[test]
    fn names_are_accepted_once() {
        let first = settled(&definition("widgets", "Widget"), [].iter());
        assert!(is_accepted(&first) && is_settled(&first));
        assert_eq!(first["status"]["acceptedNames"]["plural"], "widgets");
        assert_eq!(settled(&first, [].iter()), first);
    }

    #[test]
    fn names_of_others_are_not() {
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
