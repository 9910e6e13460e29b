//! The structure of objects: which lists are maps, which are sets, and which values are atomic.
//!
//! Field managers and strategic merge patches both use it. Custom resources define it in their schemas, built-in ones in
//! a table of facts that is [`built_in`].

pub(crate) mod built_in;

use serde_json::Value;

use crate::object::schema::{ListType, Schema};
use built_in::{Field, Type};

/// How one value is put together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Structure<'a> {
    /// As the schema of a custom resource says.
    Custom(&'a Schema),
    /// The whole of a custom resource, which has metadata beside its schema.
    CustomRoot(&'a Schema),
    /// As a built-in type is.
    BuiltIn(&'static Type),
    /// As a field of a built-in type is.
    Field(&'static Field),
    /// Nothing is known: objects have fields, lists are one value.
    Deduced,
    /// One value.
    Atomic,
}

/// How the parts of a value are identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// They are not: it is one value.
    None,
    /// By their names.
    Fields,
    /// By their value.
    Set,
    /// By these fields.
    Keyed(Vec<String>),
}

impl<'a> Structure<'a> {
    /// How the parts of this value are identified.
    pub(crate) fn parts(self, value: &Value) -> Parts {
        match (self, value) {
            (Self::Atomic | Self::Field(Field::Atomic), _) => Parts::None,
            (Self::Custom(schema), Value::Object(_)) if schema.atomic_map => Parts::None,
            (_, Value::Object(_)) => Parts::Fields,
            (Self::Custom(schema), Value::Array(_)) => match &schema.list {
                ListType::Atomic => Parts::None,
                ListType::Set => Parts::Set,
                ListType::Map(keys) => Parts::Keyed(keys.clone()),
            },
            (Self::Field(Field::Set), Value::Array(_)) => Parts::Set,
            (Self::Field(Field::Keyed { keys, .. }), Value::Array(_)) => {
                Parts::Keyed(keys.iter().map(|key| (*key).to_owned()).collect())
            }
            _ => Parts::None,
        }
    }

    /// How a field is put together.
    pub(crate) fn field(self, key: &str) -> Self {
        match self {
            Self::CustomRoot(_) if key == "metadata" => Self::BuiltIn(&built_in::METADATA),
            Self::Custom(schema) | Self::CustomRoot(schema) => {
                schema.field(key).map_or(Self::Deduced, Self::Custom)
            }
            Self::BuiltIn(kind) => kind.field(key).map_or(Self::Deduced, Self::Field),
            Self::Field(Field::Struct(kind) | Field::Retained(kind)) => Self::BuiltIn(kind).field(key),
            Self::Atomic => Self::Atomic,
            _ => Self::Deduced,
        }
    }

    /// How an item of a list is put together.
    pub(crate) fn item(self) -> Self {
        match self {
            Self::Custom(schema) => schema.items.as_deref().map_or(Self::Deduced, Self::Custom),
            Self::Field(Field::Keyed { item: Some(item), .. }) => Self::BuiltIn(item),
            Self::Field(Field::Keyed { item: None, .. }) => Self::Atomic,
            _ => Self::Deduced,
        }
    }
}
