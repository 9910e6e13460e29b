//! The structure of objects: which lists have keys, which are sets, and which values are atomic.

mod metadata;
mod open_api;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::element::Element;

/// The types of an object, and of all it is made of.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    types: Arc<[Type]>,
    root: Option<Ref>,
}

/// A type: what a value may be. Several are possible.
#[derive(Clone, Debug, Default)]
pub struct Type {
    /// The scalars that it may be.
    pub scalar: Option<Scalar>,
    /// The lists that it may be.
    pub list: Option<Box<List>>,
    /// The objects that it may be.
    pub map: Option<Box<Map>>,
}

/// A kind of scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// Whole or with a fraction.
    Number,
    /// A string.
    Text,
    /// true or false.
    Boolean,
    /// Any of them.
    Any,
}

/// A type of lists.
#[derive(Clone, Debug)]
pub struct List {
    /// How items are identified.
    pub kind: ListKind,
    /// The type of the items.
    pub item: Ref,
}

/// How the items of a list are identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// They are not: the list is one value.
    Atomic,
    /// By their value.
    Set,
    /// By these fields.
    Keyed(Vec<String>),
}

/// A type of objects.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// The fields that are named.
    pub fields: HashMap<String, Field>,
    /// The type of all other fields; none if there are no others.
    pub rest: Option<Ref>,
    /// Whether the object is one value.
    pub atomic: bool,
}

/// A named field of an object.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its type.
    pub of: Ref,
    /// Its default, which counts if it is a key of a list.
    pub default: Option<Value>,
}

/// A reference to a type.
#[derive(Clone, Debug)]
pub enum Ref {
    /// Anything, as one value.
    Untyped,
    /// Anything: objects have fields, lists are one value.
    Deduced,
    /// A type of the schema, by its index.
    Named {
        /// The index.
        index: usize,
        /// Whether objects are one value, if that is stated where the type is used.
        atomic: Option<bool>,
    },
    /// A type of its own.
    Inline(Type),
}

static UNTYPED: LazyLock<Type> = LazyLock::new(|| Type {
    scalar: Some(Scalar::Any),
    list: Some(Box::new(List { kind: ListKind::Atomic, item: Ref::Untyped })),
    map: Some(Box::new(Map { rest: Some(Ref::Untyped), atomic: true, ..Map::default() })),
});

static DEDUCED: LazyLock<Type> = LazyLock::new(|| Type {
    scalar: Some(Scalar::Any),
    list: Some(Box::new(List { kind: ListKind::Atomic, item: Ref::Untyped })),
    map: Some(Box::new(Map { rest: Some(Ref::Deduced), ..Map::default() })),
});

/// A type, and whether its objects are atomic where it is used.
#[derive(Clone, Copy)]
pub(crate) struct Shape<'s> {
    of: &'s Type,
    atomic: Option<bool>,
}

/// What a value is taken for.
#[derive(Clone, Copy)]
pub(crate) enum Kind<'s> {
    Map {
        map: &'s Map,
        atomic: bool,
    },
    Scalar(Scalar),
    List(&'s List),
    /// The type allows nothing.
    Nothing,
}

impl Schema {
    /// A schema in which everything is deduced.
    pub fn deduced() -> Self {
        Self::default()
    }

    /// A schema of named types, which others may share, and the type of the object.
    pub fn new(types: impl Into<Arc<[Type]>>, root: Ref) -> Self {
        Self { types: types.into(), root: Some(root) }
    }

    /// The type of the object.
    pub(crate) fn root(&self) -> &Ref {
        self.root.as_ref().unwrap_or(&Ref::Deduced)
    }

    pub(crate) fn resolve<'s>(&'s self, of: &'s Ref) -> Shape<'s> {
        match of {
            Ref::Untyped => Shape { of: &UNTYPED, atomic: None },
            Ref::Deduced => Shape { of: &DEDUCED, atomic: None },
            Ref::Named { index, atomic } => {
                Shape { of: self.types.get(*index).unwrap_or(&UNTYPED), atomic: *atomic }
            }
            Ref::Inline(of) => Shape { of, atomic: None },
        }
    }

    /// How an item of a list is identified.
    pub(crate) fn element(&self, list: &List, item: &Value) -> Result<Element, String> {
        match &list.kind {
            ListKind::Keyed(keys) => self.key(list, keys, item),
            ListKind::Set => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".into())
                }
                scalar => Ok(Element::Value(scalar.clone())),
            },
            ListKind::Atomic => Err("invalid indexing of non-associative list".into()),
        }
    }

    fn key(&self, list: &List, keys: &[String], item: &Value) -> Result<Element, String> {
        let item = match item {
            Value::Object(item) => item,
            Value::Null => return Err("associative list with keys may not have a null element".into()),
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let mut fields = Vec::with_capacity(keys.len());
        for key in keys {
            let default = || self.resolve(&list.item).map()?.fields.get(key)?.default.clone();
            if let Some(value) = item.get(key).cloned().or_else(default) {
                fields.push((key.clone(), value));
            }
        }
        if fields.is_empty() {
            return Err(format!(
                "associative list with keys has an element that omits all key fields {} (and doesn't have default values \
                 for any key fields)",
                quoted(keys)
            ));
        }
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(Element::Key(fields))
    }
}

/// A list of names as Go writes it with `%q`.
fn quoted(keys: &[String]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
    format!("[{}]", keys.join(" "))
}

impl<'s> Shape<'s> {
    pub(crate) fn map(self) -> Option<&'s Map> {
        self.of.map.as_deref()
    }

    pub(crate) fn list(self) -> Option<&'s List> {
        self.of.list.as_deref()
    }

    /// What a value is taken for. A missing value, null, or one that the type does not allow is taken for the first kind
    /// that it does allow.
    pub(crate) fn kind(self, value: Option<&Value>) -> Kind<'s> {
        let (map, list) = (self.map(), self.list());
        let as_map = |map: &'s Map| Kind::Map { map, atomic: self.atomic.unwrap_or(map.atomic) };
        let given = match value {
            None | Some(Value::Null) => None,
            Some(Value::Object(_)) => map.map(as_map),
            Some(Value::Array(_)) => list.map(Kind::List),
            Some(_) => self.of.scalar.map(Kind::Scalar),
        };
        let first = || map.map(as_map).or(self.of.scalar.map(Kind::Scalar)).or(list.map(Kind::List));
        given.or_else(first).unwrap_or(Kind::Nothing)
    }
}

impl Kind<'_> {
    /// Whether both are objects, scalars or lists.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Map {
    /// The type of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&Ref> {
        self.fields.get(name).map(|field| &field.of).or(self.rest.as_ref())
    }
}

#[cfg(test)]
mod tests;
