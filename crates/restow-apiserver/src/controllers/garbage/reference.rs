//! What becomes of an object, given how its owners stand.

use serde_json::{Value, json};

use crate::object::meta::{field, finalizers, is_deleting};

/// The finalizer of an owner that goes after what it owns.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner that leaves what it owns.
pub(super) const ORPHAN: &str = "orphan";

/// One entry of an object's ownerReferences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Whether an owner that goes in the foreground waits for the object.
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

/// How an owner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is there.
    Solid,
    /// It is gone, or another has its name.
    Gone,
    /// It is there until what it owns has gone.
    Waiting,
}

/// How an owner stands that was found so, or not at all.
pub(super) fn standing(reference: &Reference, found: Option<&Value>) -> Standing {
    match found {
        Some(owner) if field(owner, "uid").and_then(Value::as_str) == Some(&reference.uid) => {
            if is_waiting(owner) { Standing::Waiting } else { Standing::Solid }
        }
        _ => Standing::Gone,
    }
}

/// Whether an object goes when what it owns has gone.
pub(super) fn is_waiting(object: &Value) -> bool {
    is_deleting(object) && finalizers(object).contains(&FOREGROUND)
}

/// Whether an object is to leave what it owns.
pub(super) fn is_orphaning(object: &Value) -> bool {
    is_deleting(object) && finalizers(object).contains(&ORPHAN)
}

/// What is done about an owned object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Nothing.
    Leave,
    /// It is owned only by those that are there.
    Disown {
        /// The uids of the others.
        uids: Vec<String>,
    },
    /// It goes.
    Delete {
        /// What becomes of what it owns in turn.
        policy: &'static str,
        /// Whether its owners must not wait for it, because it waits for one of them.
        unblock: bool,
    },
}

/// What an object owns in turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owned {
    /// It owns something.
    pub(super) any: bool,
    /// Something of that waits for what it owns itself.
    pub(super) waiting: bool,
}

/// Decides on an owned object.
pub(super) fn decide(object: &Value, owners: &[(Reference, Standing)], owned: Owned) -> Act {
    if is_deleting(object) || owners.is_empty() {
        return Act::Leave;
    }
    let having = |wanted: Standing| owners.iter().filter(move |(_, standing)| *standing == wanted);
    let uids: Vec<String> = owners
        .iter()
        .filter(|(_, standing)| *standing != Standing::Solid)
        .map(|(reference, _)| reference.uid.clone())
        .collect();
    if having(Standing::Solid).next().is_some() {
        return if uids.is_empty() { Act::Leave } else { Act::Disown { uids } };
    }
    if having(Standing::Waiting).next().is_some() && owned.any {
        return Act::Delete { policy: "Foreground", unblock: owned.waiting };
    }
    let own = finalizers(object);
    let policy = match () {
        () if own.contains(&ORPHAN) => "Orphan",
        () if own.contains(&FOREGROUND) => "Foreground",
        () => "Background",
    };
    Act::Delete { policy, unblock: false }
}

/// The ownerReferences of an object without those to some uids.
pub(super) fn without(object: &Value, uids: &[String]) -> Value {
    let list = field(object, "ownerReferences").and_then(Value::as_array);
    let keep = |one: &&Value| !uids.iter().any(|uid| one["uid"] == uid.as_str());
    let left: Vec<&Value> = list.map(|list| list.iter().filter(keep).collect()).unwrap_or_default();
    if left.is_empty() { Value::Null } else { json!(left) }
}

/// The ownerReferences of an object that no owner waits for.
pub(super) fn unblocked(object: &Value) -> Value {
    let mut list = field(object, "ownerReferences").cloned().unwrap_or_default();
    for one in list.as_array_mut().into_iter().flatten().filter(|one| one["blockOwnerDeletion"] == true) {
        one["blockOwnerDeletion"] = json!(false);
    }
    list
}

/// The finalizers of an object without one.
pub(super) fn let_go(object: &Value, finalizer: &str) -> Value {
    let left: Vec<&str> = finalizers(object).into_iter().filter(|one| *one != finalizer).collect();
    json!({ "finalizers": left })
}

#[cfg(test)]
mod tests;
