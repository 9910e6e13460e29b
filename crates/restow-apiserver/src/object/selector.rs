//! Which objects a list or a watch is about: by their labels, and by the few fields a resource offers for it.

pub(crate) mod field;
pub(crate) mod label;
mod lexer;
pub(crate) mod selectable;

pub(crate) use field::FieldSelector;
pub(crate) use label::LabelSelector;
pub(crate) use selectable::Selectable;
