//! One hop between neighbouring versions that loses nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kept::{ANNOTATION, Entry, Kept, Sections, compare, restore};
use crate::schema::Schema;
use crate::{Error, metadata};

/// Converts between two neighbouring versions.
pub(crate) trait Hop: Send + Sync {
    /// The object in the newer version. Its apiVersion and metadata need not be right.
    fn upgrade(&self, object: &Value) -> Result<Value, Error>;
    /// The object in the older version. Its apiVersion and metadata need not be right.
    fn downgrade(&self, object: &Value) -> Result<Value, Error>;
    /// The fields of which the author says that they need not be kept when a hop in this direction loses them.
    fn need_not_be_kept(&self, _: Direction) -> Vec<Vec<String>> {
        Vec::new()
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
        if let Some(kept) = sections.remove(self.to.version) {
            converted = restore(changeable(kept), Some(converted)).unwrap_or_default();
        }
        let back = convert(self.hop, self.direction.reversed(), &converted, self.to.schema)?;
        let mut entries = lost(&object, &back, self.from.schema).into_entries();
        let lossy = self.hop.need_not_be_kept(self.direction);
        entries.retain(|entry| !lossy.iter().any(|path| entry.lies_below(path)));
        sections.replace(self.from.version, &entries);
        if let Some(text) = sections.text() {
            self.check_size(&text, &entries)?;
            annotate(&mut converted, text);
        }
        Ok(converted)
    }

    fn check_size(&self, text: &str, entries: &[Entry]) -> Result<(), Error> {
        if text.len() <= self.limit {
            return Ok(());
        }
        let size =
            |entry: &Entry| entry.replacement.value.as_ref().map_or(0, |value| value.to_string().len());
        let mut largest: Vec<_> = entries.iter().collect();
        largest.sort_by_key(|entry| std::cmp::Reverse(size(entry)));
        Err(Error::TooMuchToKeep {
            from: self.from.version.to_owned(),
            to: self.to.version.to_owned(),
            bytes: text.len(),
            limit: self.limit,
            paths: largest.into_iter().take(3).map(Entry::place).collect(),
        })
    }
}

/// Converts an object as the API server would see it: with the defaults of its version. An update through that version
/// fills them in, and must not look like an edit.
fn convert(hop: &dyn Hop, direction: Direction, object: &Value, schema: Schema<'_>) -> Result<Value, Error> {
    let mut defaulted = object.clone();
    schema.fill_defaults(&mut defaulted);
    let mut converted = match direction {
        Direction::Up => hop.upgrade(&defaulted)?,
        Direction::Down => hop.downgrade(&defaulted)?,
    };
    metadata::carry(object, &mut converted);
    Ok(converted)
}

/// What is lost on the way there and back. Of the metadata, only labels and annotations count.
fn lost(original: &Value, back: &Value, schema: Schema<'_>) -> Kept {
    compare(Some(original), Some(back), schema).map_or_else(|| Kept::Fields(BTreeMap::new()), changeable)
}

/// Leaves out what no conversion may change: apiVersion, kind, metadata but for labels and annotations, and the
/// annotation itself. Somebody may have written any of them into the annotation.
fn changeable(kept: Kept) -> Kept {
    let mut fields = match kept {
        Kept::Fields(fields) => fields,
        Kept::Elements(_) | Kept::Here(_) => BTreeMap::new(),
    };
    fields.retain(|name, _| name != "apiVersion" && name != "kind");
    if let Some(kept) = fields.remove("metadata")
        && let Kept::Fields(mut metadata) = kept
    {
        metadata.retain(|name, _| name == "labels" || name == "annotations");
        if let Some(Kept::Fields(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(ANNOTATION);
        }
        fields.insert("metadata".to_owned(), Kept::Fields(metadata));
    }
    Kept::Fields(fields)
}

fn annotate(object: &mut Value, text: String) {
    let annotations = &mut object["metadata"]["annotations"];
    if annotations.is_null() {
        *annotations = Value::Object(serde_json::Map::new());
    }
    annotations[ANNOTATION] = Value::String(text);
}
