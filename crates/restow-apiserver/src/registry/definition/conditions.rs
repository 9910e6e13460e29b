//! The accepted names and the conditions of a definition.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Names;
use super::fields::{list, text};
use crate::http::status::golang::quote;
use crate::object::meta::time;

/// The finalizer that delays the deletion of a definition until its objects are deleted.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A condition of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// The type, such as `Established`.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// The reason, for programs.
    pub reason: &'static str,
    /// The message, for people.
    pub message: String,
}

/// The condition of a definition that is served.
pub(crate) fn established() -> Condition {
    Condition {
        kind: "Established",
        status: "True",
        reason: "InitialNamesAccepted",
        message: "the initial names have been accepted".into(),
    }
}

/// The condition of a definition that is being deleted with all its objects.
pub(crate) fn terminating() -> Condition {
    Condition {
        kind: "Terminating",
        status: "True",
        reason: "InstanceDeletionPending",
        message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
            .into(),
    }
}

/// The accepted names of a definition, given the others of its group, and the resulting conditions.
///
/// `others` are the other definitions of the same group.
pub(crate) fn accept_names(definition: &Value, others: &[Value]) -> (Value, Vec<Condition>) {
    let empty = Value::Null;
    let asked_value = definition.get("spec").and_then(|spec| spec.get("names")).unwrap_or(&empty);
    let status = definition.get("status").unwrap_or(&empty);
    let had_value = status.get("acceptedNames").unwrap_or(&empty);
    let (asked, had) = (Names::parse(asked_value), Names::parse(had_value));
    let (resources, kinds) = taken(others);

    let mut names = had.clone();
    let mut conflict = None;
    accept_name("PluralConflict", &asked.plural, &mut names.plural, &resources, &mut conflict);
    accept_name("SingularConflict", &asked.singular, &mut names.singular, &resources, &mut conflict);
    match short_names(&asked, &had, &resources) {
        Ok(()) => names.short_names.clone_from(&asked.short_names),
        Err(message) => conflict = Some(("ShortNamesConflict", message)),
    }
    accept_name("KindConflict", &asked.kind, &mut names.kind, &kinds, &mut conflict);
    accept_name("ListKindConflict", &asked.list_kind, &mut names.list_kind, &kinds, &mut conflict);
    names.categories = asked.categories;
    let accepted = conflict.is_none();
    let (reason, message) = conflict.unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    let status_word = if accepted { "True" } else { "False" };
    let mut conditions = vec![Condition { kind: "NamesAccepted", status: status_word, reason, message }];
    conditions.extend(not_established(status, accepted));
    (names.to_value(), conditions)
}

/// Accepts a free name, and reports a conflict. Of several conflicts, the last is reported.
fn accept_name(
    reason: &'static str,
    asked: &str,
    had: &mut String,
    taken: &BTreeSet<String>,
    conflict: &mut Option<(&'static str, String)>,
) {
    if asked != had && taken.contains(asked) {
        *conflict = Some((reason, format!("{} is already in use", quote(asked))));
    } else {
        asked.clone_into(had);
    }
}

/// The condition of a definition that was not established before; none if it was.
fn not_established(status: &Value, accepted: bool) -> Option<Condition> {
    if is_true_in(status, "Established") {
        return None;
    }
    let (reason, message) = if accepted {
        ("Installing", "the initial names have been accepted")
    } else {
        ("NotAccepted", "not all names are accepted")
    };
    Some(Condition { kind: "Established", status: "False", reason, message: message.into() })
}

fn short_names(asked: &Names, had: &Names, taken: &BTreeSet<String>) -> Result<(), String> {
    if asked.short_names == had.short_names {
        return Ok(());
    }
    let new = asked.short_names.iter().filter(|name| !had.short_names.contains(name));
    let used: Vec<_> = new
        .filter(|name| taken.contains(*name))
        .map(|name| format!("{} is already in use", quote(name)))
        .collect();
    match used.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        _ => Err(format!("[{}]", used.join(", "))),
    }
}

fn taken(others: &[Value]) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for other in others {
        let Some(names) = other.get("status").and_then(|status| status.get("acceptedNames")) else {
            continue;
        };
        let names = Names::parse(names);
        resources.extend([names.plural, names.singular]);
        resources.extend(names.short_names);
        kinds.extend([names.kind, names.list_kind]);
    }
    (resources, kinds)
}

impl Names {
    fn to_value(&self) -> Value {
        let mut names = json!({"plural": self.plural, "kind": self.kind});
        for (key, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                names[key] = json!(text);
            }
        }
        for (key, list) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !list.is_empty() {
                names[key] = json!(list);
            }
        }
        names
    }
}

/// Whether a condition of a definition is true.
pub(crate) fn is_true(definition: &Value, kind: &str) -> bool {
    definition.get("status").is_some_and(|status| is_true_in(status, kind))
}

fn is_true_in(status: &Value, kind: &str) -> bool {
    list(status, "conditions").iter().any(|one| text(one, "type") == kind && text(one, "status") == "True")
}

/// Sets a condition, and keeps its time if the status is unchanged. Returns whether anything changed.
pub(crate) fn set(definition: &mut Value, condition: &Condition, now: Timestamp) -> bool {
    let before = definition.clone();
    let Some(fields) = definition.as_object_mut() else { return false };
    let status = fields.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return false };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return false };
    let mut entry = json!({"type": condition.kind, "status": condition.status, "reason": condition.reason,
        "message": condition.message, "lastTransitionTime": time(now)});
    match conditions.iter_mut().find(|one| text(one, "type") == condition.kind) {
        Some(old) => {
            if text(old, "status") == condition.status {
                entry["lastTransitionTime"] = old.get("lastTransitionTime").cloned().unwrap_or_default();
            }
            if let Some(generation) = old.get("observedGeneration") {
                entry["observedGeneration"] = generation.clone();
            }
            *old = entry;
        }
        None => conditions.push(entry),
    }
    *definition != before
}
