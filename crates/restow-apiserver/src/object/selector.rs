//! Which objects a list or a watch is about: by their labels, and by the few fields a resource offers for it.

pub mod field;
pub mod label;
mod lexer;
pub mod selectable;

pub use field::FieldSelector;
pub use label::LabelSelector;
pub use selectable::Selectable;
