//! The annotation that holds what is kept, for each version that something is kept of.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
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

    /// The places of an object that something is kept of, up to the first list.
    pub(crate) fn places(object: &Value) -> Vec<Vec<String>> {
        let text = object
            .get("metadata")
            .and_then(|metadata| metadata.get("annotations")?.get(ANNOTATION)?.as_str());
        let Some(text) = text else { return Vec::new() };
        let sections: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
        let entries = sections.values().filter_map(Value::as_array).flatten();
        let paths = entries.filter_map(|entry| entry.get("path")?.as_array());
        paths.map(|path| path.iter().map_while(|step| step.as_str().map(str::to_owned)).collect()).collect()
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

    /// How long the annotation's text is, if nothing else is in it. Zero without entries.
    pub(crate) fn length(version: &str, entries: &[Entry]) -> usize {
        if entries.is_empty() { 0 } else { json_length(&BTreeMap::from([(version, entries)])) }
    }

    /// The annotation's text. None if nothing is kept.
    pub(crate) fn text(&self) -> Option<String> {
        // No map in it has keys other than strings, so it cannot fail.
        (!self.0.is_empty()).then(|| serde_json::to_string(&self.0).unwrap_or_default())
    }
}

/// How long a value is as JSON, without writing it anywhere.
pub(crate) fn json_length(value: &impl Serialize) -> usize {
    struct Length(usize);
    impl Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    // Counting does not fail.
    let _ = serde_json::to_writer(&mut length, value);
    length.0
}
