//! Which fields a conversion does not touch.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::shape::Shape;

/// The fields of an object that a conversion does not touch.
#[derive(Debug, PartialEq)]
pub(crate) struct Untouched {
    fields: HashMap<String, Field>,
    /// The fields that have no name here. Without a shape, they are read.
    others: Option<Shape>,
}

#[derive(Debug, PartialEq)]
enum Field {
    /// It is read.
    Read,
    /// It is not touched at all.
    Whole(Shape),
    /// Some fields below it are not touched.
    Below(Untouched),
}

/// What is to be done with a field.
pub(super) enum Use<'a> {
    Read,
    SetAside(&'a Shape),
    Below(&'a Untouched),
}

impl Untouched {
    /// What a conversion between versions with these schemas does not touch, if it touches only these paths.
    pub(crate) fn of(schemas: &[&Value], touched: &[&[String]]) -> Self {
        let Self { mut fields, others } = below(schemas, touched);
        let metadata: Vec<_> = within(touched, "metadata").collect();
        fields.extend(envelope(&metadata));
        Self { fields, others }
    }

    /// Everything but what every conversion reads.
    pub(crate) fn everything() -> Self {
        Self { fields: envelope(&[]).into(), others: Some(Shape::Any) }
    }

    /// Whether a path leads to an untouched field, or to an object that has some.
    pub(crate) fn has(&self, path: &[String]) -> bool {
        let Some((name, rest)) = path.split_first() else { return true };
        match self.field(name) {
            Use::SetAside(_) => true,
            Use::Below(below) => below.has(rest),
            Use::Read => false,
        }
    }

    pub(super) fn field(&self, name: &str) -> Use<'_> {
        match (self.fields.get(name), &self.others) {
            (Some(Field::Whole(shape)), _) | (None, Some(shape)) => Use::SetAside(shape),
            (Some(Field::Below(below)), _) => Use::Below(below),
            (Some(Field::Read), _) | (None, None) => Use::Read,
        }
    }
}

/// The fields that every object has. Metadata but labels and annotations never changes.
fn envelope(touched: &[&[String]]) -> [(String, Field); 3] {
    let metadata = if touched.iter().any(|path| path.is_empty()) {
        Field::Read
    } else {
        let read = ["labels", "annotations", "name", "namespace"].map(str::to_owned).into_iter();
        let read = read.chain(touched.iter().filter_map(|path| path.first().cloned()));
        let fields = read.map(|name| (name, Field::Read)).collect();
        Field::Below(Untouched { fields, others: Some(Shape::Any) })
    };
    [
        ("apiVersion".to_owned(), Field::Read),
        ("kind".to_owned(), Field::Read),
        ("metadata".to_owned(), metadata),
    ]
}

fn below(schemas: &[&Value], touched: &[&[String]]) -> Untouched {
    let names = schemas.first().and_then(|schema| schema.get("properties")?.as_object());
    let names = names.into_iter().flat_map(Map::keys);
    let field = |name: &String| {
        let schemas = schemas.iter().map(|schema| schema.get("properties")?.get(name));
        let schemas: Vec<_> = schemas.collect::<Option<_>>()?;
        let touched: Vec<_> = within(touched, name).collect();
        let field = if touched.is_empty() {
            Field::Whole(Shape::common(&schemas)?)
        } else if touched.iter().any(|path| path.is_empty()) {
            Field::Read
        } else {
            Field::Below(below(&schemas, &touched))
        };
        Some((name.clone(), field))
    };
    Untouched { fields: names.filter_map(field).collect(), others: None }
}

/// The paths that lead through a field, as seen from there.
fn within<'p>(paths: &[&'p [String]], name: &str) -> impl Iterator<Item = &'p [String]> {
    paths.iter().filter_map(move |path| match path.split_first() {
        Some((first, rest)) if first == name => Some(rest),
        _ => None,
    })
}
