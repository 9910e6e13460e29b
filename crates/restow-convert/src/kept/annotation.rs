//! The annotation that holds what is kept, for each version that something is kept of.

use serde_json::{Map, Value};

use super::tree::Entry;

/// What restow writes is not nested deeper than objects may be.
const MAX_DEPTH: usize = 100;

/// The annotation's name.
pub const ANNOTATION: &str = "restow.dev/conversion-data";

/// What is kept of an object, by the version that it belongs to.
///
/// What was not written by restow, or by a later restow, is carried along without being understood. It never makes a
/// conversion fail: whoever may annotate one object could otherwise make lists of all objects fail.
#[derive(Default)]
pub(crate) struct Sections(Map<String, Value>);

impl Sections {
    /// Takes the annotation off an object.
    pub(crate) fn take(object: &mut Value) -> Self {
        let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return Self::default() };
        let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
            return Self::default();
        };
        let Some(Value::String(text)) = annotations.get(ANNOTATION) else { return Self::default() };
        let Ok(sections) = serde_json::from_str(text) else { return Self::default() };
        annotations.remove(ANNOTATION);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
        Self(sections)
    }

    /// Takes out what is kept of a version. Entries that are nested too deep are not restow's.
    pub(crate) fn remove(&mut self, version: &str) -> Vec<Entry> {
        let section = self.0.remove(version).unwrap_or_default();
        let mut entries: Vec<Entry> = serde_json::from_value(section).unwrap_or_default();
        entries.retain(|entry| !entry.is_deeper_than(MAX_DEPTH));
        entries
    }

    /// Gives up what is kept of all versions but one.
    pub(crate) fn retain(&mut self, version: &str) {
        self.0.retain(|name, _| name == version);
    }

    /// Sets what is kept of a version.
    pub(crate) fn replace(&mut self, version: &str, entries: &[Entry]) {
        if entries.is_empty() {
            self.0.remove(version);
        } else {
            self.0.insert(version.to_owned(), entries.iter().map(Entry::to_json).collect());
        }
    }

    /// The annotation's text. None if nothing is kept.
    pub(crate) fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| Value::Object(self.0.clone()).to_string())
    }
}
