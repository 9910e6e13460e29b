//! One hop between neighbouring versions that loses nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::convertible::MAX_DEPTH;
use crate::kept::{
    ANNOTATION, Counterpart, Entry, Kept, Pattern, Sections, compare, is_deeper, json_length, restore,
};
use crate::schema::Schema;
use crate::{Error, metadata};

/// How often restoring is tried before what is left is dropped. One try is enough unless somebody edited the object.
const MAX_TRIES: usize = 64;
/// The bytes that Kubernetes allows for all annotations of an object.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Converts between two neighbouring versions.
pub(crate) trait Hop: Send + Sync {
    /// The object in the newer version. Its apiVersion and metadata need not be right.
    fn upgrade(&self, object: &Value) -> Result<Value, Error>;
    /// The object in the older version. Its apiVersion and metadata need not be right.
    fn downgrade(&self, object: &Value) -> Result<Value, Error>;
    /// The fields of which the author says that they need not be kept when a hop in this direction loses them.
    fn need_not_be_kept(&self, _: Direction) -> Vec<Vec<Pattern>> {
        Vec::new()
    }
    /// The paths of all fields of both versions that the hop reads or writes. None if it may be any.
    fn touched(&self) -> Option<Vec<&[String]>> {
        None
    }
}

/// The direction of a hop.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Up,
    Down,
}

impl Direction {
    fn reversed(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// A version and its schema, as far as it is known.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    pub version: &'a str,
    pub schema: Schema<'a>,
}

/// A hop, the versions it is between, and how much may be kept.
pub(crate) struct Step<'a> {
    pub hop: &'a dyn Hop,
    pub direction: Direction,
    pub from: End<'a>,
    pub to: End<'a>,
    pub limit: usize,
}

impl Step<'_> {
    /// The object in the other version. What that version cannot express is kept in the annotation, and what was kept
    /// of that version is restored.
    pub(crate) fn take(&self, mut object: Value) -> Result<Value, Error> {
        let mut sections = Sections::take(&mut object);
        let mut converted = convert(self.hop, self.direction, &object, self.from.schema)?;
        let mut back = self.back(&converted)?;
        let kept = sections.remove(self.to.version);
        if !kept.is_empty() {
            (converted, back) = self.restored(&object, converted, back, kept);
        }
        let mut entries = self.lost(&object, &converted, back);
        let lossy = self.hop.need_not_be_kept(self.direction);
        entries.retain(|entry| !lossy.iter().any(|pattern| entry.lies_below(pattern)));
        let limit = self.room(&converted, &entries)?;
        sections.replace(self.from.version, &entries);
        drop(entries);
        if let Some(text) = self.bounded(&mut sections, limit) {
            annotate(&mut converted, text);
        }
        Ok(converted)
    }

    fn back(&self, converted: &Value) -> Result<Value, Error> {
        convert(self.hop, self.direction.reversed(), converted, self.to.schema)
    }

    /// The converted object with what was kept of it, and what comes back of that.
    ///
    /// What is restored must not change what the object shows in the version that it comes from: it would undo an edit,
    /// or bring back what was removed there. So nothing may be lost on the way back that is not lost without it.
    fn restored(&self, object: &Value, converted: Value, back: Value, kept: Vec<Entry>) -> (Value, Value) {
        // A default is the same whether it is written or not.
        let defaulted = |value: &Value| {
            let mut value = value.clone();
            self.from.schema.fill_defaults(&mut value);
            value
        };
        let shown = defaulted(object);
        let lost_anyway = self.lost(&shown, &converted, defaulted(&back));
        let mut tries = MAX_TRIES;
        let mut accept = |entries: &[Entry]| -> Option<(Value, Value)> {
            tries = tries.checked_sub(1)?;
            let kept = changeable(Kept::from_entries(entries.iter().cloned())?);
            let restored =
                restore(kept, Some(converted.clone())).filter(|value| !is_deeper(value, MAX_DEPTH))?;
            let back = self.back(&restored).ok()?;
            let lost = self.lost(&shown, &restored, defaulted(&back));
            let as_before =
                |entry: &Entry| lost_anyway.iter().any(|known| entry.path.starts_with(&known.path));
            lost.iter().all(as_before).then_some((restored, back))
        };
        match pick(&kept, &mut accept) {
            Some((_, restored)) => restored,
            None => (converted, back),
        }
    }

    /// What is lost on the way there and back. Of the metadata, only labels and annotations count.
    fn lost(&self, original: &Value, converted: &Value, mut back: Value) -> Vec<Entry> {
        // An empty map of annotations does not survive the annotation.
        if back["metadata"]["annotations"].as_object().is_some_and(Map::is_empty)
            && let Some(metadata) = back["metadata"].as_object_mut()
        {
            metadata.remove("annotations");
        }
        let there = Counterpart::Known(Some(converted));
        let lost = compare(Some(original), Some(&back), there, self.from.schema);
        lost.map(|kept| changeable(kept).into_entries()).unwrap_or_default()
    }

    /// How long the annotation may be, after a check that what is lost here fits. It is measured before it is written: of an
    /// object made for that, the text would take many times the memory.
    fn room(&self, converted: &Value, entries: &[Entry]) -> Result<usize, Error> {
        let others = converted["metadata"]["annotations"].as_object().into_iter().flatten();
        let others: usize = others.map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
        let limit = self.limit.min(MAX_ANNOTATIONS.saturating_sub(others + ANNOTATION.len()));
        let bytes = Sections::length(self.from.version, entries);
        if bytes <= limit {
            return Ok(limit);
        }
        let size = |entry: &Entry| entry.replacement.value.as_ref().map_or(0, json_length);
        let mut largest: Vec<_> = entries.iter().collect();
        largest.sort_by_cached_key(|entry| std::cmp::Reverse(size(entry)));
        Err(Error::TooMuchToKeep {
            from: self.from.version.to_owned(),
            to: self.to.version.to_owned(),
            bytes,
            limit,
            paths: largest.into_iter().take(3).map(Entry::place).collect(),
        })
    }

    /// The text of the annotation. What other versions than those at hand have there is given up before it is too long.
    fn bounded(&self, sections: &mut Sections, limit: usize) -> Option<String> {
        let text = sections.text()?;
        if text.len() <= limit {
            return Some(text);
        }
        sections.retain(self.from.version);
        sections.text()
    }
}

/// The most entries that are accepted together, and what comes of them.
fn pick<T>(entries: &[Entry], accept: &mut dyn FnMut(&[Entry]) -> Option<T>) -> Option<(Vec<Entry>, T)> {
    if entries.is_empty() {
        return None;
    }
    if let Some(restored) = accept(entries) {
        return Some((entries.to_vec(), restored));
    }
    if entries.len() == 1 {
        return None;
    }
    let (left, right) = entries.split_at(entries.len() / 2);
    match (pick(left, accept), pick(right, accept)) {
        (Some((mut left, restored)), Some((right, _))) => {
            let alone = left.clone();
            left.extend(right);
            accept(&left).map(|both| (left, both)).or(Some((alone, restored)))
        }
        (one, other) => one.or(other),
    }
}

/// Converts an object as the API server would see it: with the defaults of its version. An update through that version
/// fills them in, and must not look like an edit.
fn convert(hop: &dyn Hop, direction: Direction, object: &Value, schema: Schema<'_>) -> Result<Value, Error> {
    let mut defaulted = Cow::Borrowed(object);
    // Most schemas have none, and a copy of the object takes long.
    if schema.has_defaults() {
        schema.fill_defaults(defaulted.to_mut());
    }
    let mut converted = match direction {
        Direction::Up => hop.upgrade(&defaulted)?,
        Direction::Down => hop.downgrade(&defaulted)?,
    };
    metadata::carry(object, &mut converted);
    Ok(converted)
}

/// Leaves out what no conversion may change: apiVersion, kind, metadata but for labels and annotations, and the
/// annotation itself. Somebody may have written any of them into the annotation.
fn changeable(kept: Kept) -> Kept {
    let mut fields = match kept {
        Kept::Fields { fields, .. } => fields,
        Kept::Elements { .. } | Kept::Here(_) => BTreeMap::new(),
    };
    fields.retain(|name, _| name != "apiVersion" && name != "kind");
    if let Some(kept) = fields.remove("metadata")
        && let Kept::Fields { fields: mut metadata, .. } = kept
    {
        metadata.retain(|name, kept| (name == "labels" || name == "annotations") && has_only_text(kept));
        if let Some(Kept::Fields { fields: annotations, .. }) = metadata.get_mut("annotations") {
            annotations.remove(ANNOTATION);
        }
        fields.insert("metadata".to_owned(), Kept::Fields { fields: metadata, make: false });
    }
    Kept::Fields { fields, make: false }
}

/// Whether what is kept of labels or annotations leaves them a map of texts.
fn has_only_text(kept: &Kept) -> bool {
    match kept {
        Kept::Here(replacement) => replacement.value.as_ref().is_none_or(|value| match value {
            Value::Object(fields) => fields.values().all(Value::is_string),
            other => other.is_null(),
        }),
        Kept::Fields { fields, .. } => fields.values().all(|kept| match kept {
            Kept::Here(replacement) => replacement.value.as_ref().is_none_or(Value::is_string),
            Kept::Fields { .. } | Kept::Elements { .. } => false,
        }),
        Kept::Elements { .. } => false,
    }
}

fn annotate(object: &mut Value, text: String) {
    let annotations = &mut object["metadata"]["annotations"];
    if annotations.is_null() {
        *annotations = Value::Object(serde_json::Map::new());
    }
    annotations[ANNOTATION] = Value::String(text);
}
