//! Decides what happens to an object, from the states of its owners.

use serde_json::{Value, json};

use crate::object::meta::{field, finalizers, is_deleting};

/// The finalizer of foreground deletion.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner that orphans its dependents.
pub(super) const ORPHAN: &str = "orphan";

/// One entry of an object's ownerReferences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Whether a foreground deletion of the owner waits for the object.
    pub(super) blocks: bool,
}

/// The ownerReferences of an object.
pub(super) fn references(object: &Value) -> Vec<Reference> {
    let list = field(object, "ownerReferences").and_then(Value::as_array);
    let read = |one: &Value| {
        let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        Reference {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            blocks: one["blockOwnerDeletion"] == true,
        }
    };
    list.map(|list| list.iter().map(read).collect()).unwrap_or_default()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// It exists.
    Solid,
    /// It does not exist, or another object has its name.
    Gone,
    /// It is being deleted in the foreground, and waits for its dependents.
    Waiting,
}

/// The state of an owner, given the object that was found under its name.
pub(super) fn owner_state(reference: &Reference, found: Option<&Value>) -> OwnerState {
    match found {
        Some(owner) if field(owner, "uid").and_then(Value::as_str) == Some(&reference.uid) => {
            if is_waiting(owner) { OwnerState::Waiting } else { OwnerState::Solid }
        }
        _ => OwnerState::Gone,
    }
}

/// Whether an object waits for its dependents in a foreground deletion.
pub(super) fn is_waiting(object: &Value) -> bool {
    is_deleting(object) && finalizers(object).contains(&FOREGROUND)
}

/// Whether an object orphans its dependents.
pub(super) fn is_orphaning(object: &Value) -> bool {
    is_deleting(object) && finalizers(object).contains(&ORPHAN)
}

/// What is done with a dependent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GarbageAction {
    /// Nothing.
    Leave,
    /// References to absent owners are removed.
    Disown {
        /// The uids of the absent owners.
        uids: Vec<String>,
    },
    /// It is deleted.
    Delete {
        /// The propagation policy.
        policy: &'static str,
        /// Whether it must stop blocking its owners, because of a cycle.
        unblock: bool,
    },
}

/// The dependents of an object.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owned {
    /// Whether it has dependents.
    pub(super) any: bool,
    /// Whether a dependent waits for its own dependents.
    pub(super) waiting: bool,
}

/// Decides what is done with a dependent.
pub(super) fn decide(object: &Value, owners: &[(Reference, OwnerState)], owned: Owned) -> GarbageAction {
    if is_deleting(object) || owners.is_empty() {
        return GarbageAction::Leave;
    }
    let having = |wanted: OwnerState| owners.iter().filter(move |(_, owner_state)| *owner_state == wanted);
    let uids: Vec<String> = owners
        .iter()
        .filter(|(_, owner_state)| *owner_state != OwnerState::Solid)
        .map(|(reference, _)| reference.uid.clone())
        .collect();
    if having(OwnerState::Solid).next().is_some() {
        return if uids.is_empty() { GarbageAction::Leave } else { GarbageAction::Disown { uids } };
    }
    if having(OwnerState::Waiting).next().is_some() && owned.any {
        return GarbageAction::Delete { policy: "Foreground", unblock: owned.waiting };
    }
    let own = finalizers(object);
    let policy = match () {
        () if own.contains(&ORPHAN) => "Orphan",
        () if own.contains(&FOREGROUND) => "Foreground",
        () => "Background",
    };
    GarbageAction::Delete { policy, unblock: false }
}

/// The ownerReferences of an object without those to some uids.
pub(super) fn without(object: &Value, uids: &[String]) -> Value {
    let list = field(object, "ownerReferences").and_then(Value::as_array);
    let keep = |one: &&Value| !uids.iter().any(|uid| one["uid"] == uid.as_str());
    let left: Vec<&Value> = list.map(|list| list.iter().filter(keep).collect()).unwrap_or_default();
    if left.is_empty() { Value::Null } else { json!(left) }
}

/// The ownerReferences of an object, with no owner blocked.
pub(super) fn unblocked(object: &Value) -> Value {
    let mut list = field(object, "ownerReferences").cloned().unwrap_or_default();
    for one in list.as_array_mut().into_iter().flatten().filter(|one| one["blockOwnerDeletion"] == true) {
        one["blockOwnerDeletion"] = json!(false);
    }
    list
}

/// The finalizers of an object without one.
pub(super) fn without_finalizer(object: &Value, finalizer: &str) -> Value {
    let left: Vec<&str> = finalizers(object).into_iter().filter(|one| *one != finalizer).collect();
    json!({ "finalizers": left })
}

#[cfg(test)]
mod tests;
