//! Metadata on update.

use serde_json::{Value, json};

use super::{Endpoint, Generation, Rules, StatusRule, create, field, generation, name, set, text};
use crate::http::status::golang::quote;
use crate::http::status::{Cause, GroupKind, StatusError};

/// Refuses an object with another name than in the path, and sets its namespace.
pub(crate) fn check_names(
    object: &mut Value,
    rules: &Rules,
    namespace: &str,
    url_name: &str,
) -> Result<(), StatusError> {
    create::set_namespace(object, rules, namespace)?;
    let own = name(object);
    if own.is_empty() {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({url_name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if own != url_name {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({own}) does not match the name on the URL ({url_name})"
        )));
    }
    Ok(())
}

/// Refuses an update with another uid than the object stored under `key`.
pub(crate) fn check_uid(
    object: &Value,
    old: Option<&Value>,
    rules: &Rules,
    key: &str,
) -> Result<(), StatusError> {
    let (wanted, found) = (text(object, "uid"), old.map(|old| text(old, "uid")).unwrap_or_default());
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    Err(StatusError::uid_precondition(&rules.resource, name(object), key, wanted, found))
}

/// Restores fields that an update cannot change, and increases the generation. `old` has its resourceVersion.
pub(crate) fn prepare(
    object: &mut Value,
    old: &Value,
    rules: &Rules,
    endpoint: Endpoint,
) -> Result<(), StatusError> {
    check_version(object, old, rules)?;
    set(object, "generation", field(old, "generation").cloned());
    match endpoint {
        Endpoint::Main => prepare_main(object, old, rules),
        Endpoint::Status => prepare_status(object, old, rules),
    }
    if text(object, "uid").is_empty() {
        set(object, "uid", field(old, "uid").cloned());
    }
    for key in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(value) = field(old, key) {
            set(object, key, Some(value.clone()));
        }
    }
    if field(object, "deletionGracePeriodSeconds").is_none() {
        set(object, "deletionGracePeriodSeconds", field(old, "deletionGracePeriodSeconds").cloned());
    }
    set(object, "selfLink", None);
    Ok(())
}

fn check_version(object: &mut Value, old: &Value, rules: &Rules) -> Result<(), StatusError> {
    let current = text(old, "resourceVersion");
    let wanted = match text(object, "resourceVersion") {
        "" => 0,
        wanted => wanted.parse::<u64>().map_err(|error| {
            let why = if *error.kind() == std::num::IntErrorKind::PosOverflow {
                "value out of range"
            } else {
                "invalid syntax"
            };
            StatusError::plain(format!("strconv.ParseUint: parsing {}: {why}", quote(wanted)))
        })?,
    };
    if wanted == 0 && rules.unconditional_update {
        set(object, "resourceVersion", Some(json!(current)));
        return Ok(());
    }
    if wanted == 0 {
        let cause = Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
        let kind = GroupKind::new(&rules.resource.group, &rules.resource.resource);
        return Err(StatusError::invalid(&kind, name(old), vec![cause]));
    }
    if current.parse() != Ok(wanted) {
        return Err(StatusError::modified(&rules.resource, name(old)));
    }
    Ok(())
}

fn prepare_main(object: &mut Value, old: &Value, rules: &Rules) {
    if rules.status != StatusRule::None {
        put(object, "status", old.get("status"));
    }
    let changed = match rules.generation {
        Generation::None => false,
        Generation::Content => !same_content(object, old),
        Generation::Spec => object.get("spec") != old.get("spec"),
        Generation::SpecOrAnnotations => {
            object.get("spec") != old.get("spec") || field(object, "annotations") != field(old, "annotations")
        }
    };
    if changed {
        set(object, "generation", Some(json!(generation(old) + 1)));
    }
}

fn prepare_status(object: &mut Value, old: &Value, rules: &Rules) {
    match rules.status {
        StatusRule::None => {}
        StatusRule::StatusOnly => {
            let (status, managed) = (object.get("status").cloned(), field(object, "managedFields").cloned());
            *object = old.clone();
            put(object, "status", status.as_ref());
            set(object, "managedFields", managed);
        }
        StatusRule::KeepSpecAnd(kept) => {
            put(object, "spec", old.get("spec"));
            for key in kept {
                set(object, key, field(old, key).cloned());
            }
        }
    }
}

fn put(object: &mut Value, key: &str, value: Option<&Value>) {
    let Some(fields) = object.as_object_mut() else { return };
    match value {
        Some(value) => fields.insert(key.to_owned(), value.clone()),
        None => fields.remove(key),
    };
}

/// Whether two objects are equal apart from their metadata.
fn same_content(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let content = |key: &&String| *key != "metadata";
    one.keys().filter(content).count() == other.keys().filter(content).count()
        && one.iter().filter(|(key, _)| content(key)).all(|(key, value)| other.get(key) == Some(value))
}

/// Whether an update changes only the times of managedFields. Those are then restored, so that nothing is written.
pub(crate) fn restore_times(object: &mut Value, old: &Value) -> bool {
    if object == old {
        return true;
    }
    let same = same_content(object, old)
        && same_fields(field(object, "managedFields"), field(old, "managedFields"))
        && same_metadata(object, old);
    if same {
        set(object, "managedFields", field(old, "managedFields").cloned());
    }
    same
}

fn same_metadata(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.get("metadata"), other.get("metadata")) else { return false };
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let counted = |key: &&String| *key != "managedFields";
    one.keys().filter(counted).count() == other.keys().filter(counted).count()
        && one.iter().filter(|(key, _)| counted(key)).all(|(key, value)| other.get(key) == Some(value))
}

/// Whether two lists of managedFields are equal apart from their times.
fn same_fields(one: Option<&Value>, other: Option<&Value>) -> bool {
    let (Some(Value::Array(one)), Some(Value::Array(other))) = (one, other) else { return one == other };
    let timeless = |entry: &Value| {
        let mut entry = entry.clone();
        if let Some(fields) = entry.as_object_mut() {
            fields.remove("time");
        }
        entry
    };
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| timeless(one) == timeless(other))
}

/// Whether an update removes the last finalizer of an object that is being deleted: it is deleted instead.
pub(crate) fn is_finished(object: &Value, old: &Value) -> bool {
    let grace = field(old, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    super::is_deleting(old) && grace == 0 && super::finalizers(object).is_empty()
}
