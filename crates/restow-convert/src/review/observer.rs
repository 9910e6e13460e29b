//! Which objects are being converted, for whoever watches.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

/// No message repeats more of a name than this: names of Kubernetes objects are not longer.
const LONGEST_NAME: usize = 253;

/// Follows the conversion of a review, from all threads that take part in it.
pub trait Observer: Sync {
    /// An object is about to be converted. False ends the review.
    fn begin(&self, place: &Place) -> bool;

    /// The conversion of an object has ended, with whatever result.
    fn end(&self, place: &Place);
}

/// An object's place in the review, and its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    index: usize,
    kind: String,
    namespace: String,
    name: String,
}

impl Place {
    pub(super) fn of(index: usize, object: &Value) -> Self {
        let text =
            |value: Option<&Value>| shortened(value.and_then(Value::as_str).unwrap_or_default()).to_owned();
        let metadata = |field| text(object.get("metadata").and_then(|metadata| metadata.get(field)));
        Self {
            index,
            kind: text(object.get("kind")),
            namespace: metadata("namespace"),
            name: metadata("name"),
        }
    }

    /// The name of an object that is nested too deep to be read as a whole.
    pub(super) fn of_text(index: usize, text: &str) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Named {
            kind: String,
            metadata: Metadata,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Metadata {
            namespace: String,
            name: String,
        }
        let Named { kind, metadata } = serde_json::from_str(text).unwrap_or_default();
        let short = |text: String| shortened(&text).to_owned();
        Self { index, kind: short(kind), namespace: short(metadata.namespace), name: short(metadata.name) }
    }

    /// The number of objects before it.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind.as_str(), self.namespace.as_str(), self.name.as_str()) {
            ("", ..) | (.., "") => write!(f, "object {}", self.index + 1),
            (kind, "", name) => write!(f, "{kind} {name}"),
            (kind, namespace, name) => write!(f, "{kind} {namespace}/{name}"),
        }
    }
}

/// A text, cut short for a message.
pub(super) fn shortened(text: &str) -> &str {
    text.char_indices().nth(LONGEST_NAME).map_or(text, |(end, _)| &text[..end])
}
