//! Metadata on create.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Generation, Rules, StatusRule, set, text};
use crate::http::status::StatusError;

/// The characters of generated names: no vowels, to avoid words.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The longest prefix of a generated name: with five characters more, it fits in a label.
const LONGEST_BASE: usize = 58;

/// Values that the server sets on a new object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreateOptions<'a> {
    /// The namespace of the request, empty at the cluster scope.
    pub namespace: &'a str,
    pub uid: &'a str,
    /// When.
    pub now: Timestamp,
    /// Randomness for a generated name.
    pub random: u64,
}

/// Sets server-set fields, and removes fields that a client cannot set.
pub(crate) fn prepare(
    object: &mut Value,
    rules: &Rules,
    birth: &CreateOptions<'_>,
) -> Result<(), StatusError> {
    set_namespace(object, rules, birth.namespace)?;
    if text(object, "resourceVersion").parse::<u64>().is_ok_and(|version| version != 0) {
        return Err(StatusError::plain("resourceVersion should not be set on objects to be created"));
    }
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
        set(object, key, None);
    }
    set(object, "creationTimestamp", Some(json!(super::time(birth.now))));
    set(object, "uid", Some(json!(birth.uid)));
    if rules.generation != Generation::None {
        set(object, "generation", Some(json!(1)));
    }
    if text(object, "name").is_empty() && !text(object, "generateName").is_empty() {
        let generated = generated_name(text(object, "generateName"), birth.random);
        set(object, "name", Some(json!(generated)));
    }
    if rules.status != StatusRule::None
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    Ok(())
}

/// Whether the server generates the name, and tries another if it exists.
pub(crate) fn is_generated(object: &Value) -> bool {
    text(object, "name").is_empty() && !text(object, "generateName").is_empty()
}

/// A generated name with the prefix `base`.
pub(crate) fn generated_name(base: &str, random: u64) -> String {
    let end = (0..=base.len().min(LONGEST_BASE)).rev().find(|&end| base.is_char_boundary(end)).unwrap_or(0);
    let mut name = base[..end].to_owned();
    let mut rest = random;
    for _ in 0..5 {
        let count = LETTERS.len() as u64;
        name.push(char::from(LETTERS[(rest % count) as usize]));
        rest /= count;
    }
    name
}

/// Sets the namespace of the request. Refuses an object of another namespace.
pub(crate) fn set_namespace(object: &mut Value, rules: &Rules, namespace: &str) -> Result<(), StatusError> {
    let namespace = if rules.namespaced { namespace } else { "" };
    match text(object, "namespace") {
        own if own == namespace => Ok(()),
        own if !own.is_empty() && !namespace.is_empty() => Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        _ => {
            set(object, "namespace", (!namespace.is_empty()).then(|| json!(namespace)));
            Ok(())
        }
    }
}
