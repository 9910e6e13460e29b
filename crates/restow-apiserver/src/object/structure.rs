//! The structure of built-in objects for strategic merge patches: which lists are merged, and by which key.
//!
//! It is a table of facts, which is [`built_in`]. Field managers have other rules, and get them from the types themselves
//! (`protobuf::schema`).

pub(crate) mod built_in;

use built_in::{Field, Type};

/// How one value is put together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Structure {
    /// As a built-in type is.
    BuiltIn(&'static Type),
    /// As a field of a built-in type is.
    Field(&'static Field),
    /// Nothing is known: lists are replaced.
    Plain,
}

impl Structure {
    /// How a field is put together.
    pub(crate) fn field(self, key: &str) -> Self {
        let of = match self {
            Self::BuiltIn(kind) => kind,
            Self::Field(Field::Struct(kind)) => kind,
            Self::Field(_) | Self::Plain => return Self::Plain,
        };
        of.field(key).map_or(Self::Plain, Self::Field)
    }
}
