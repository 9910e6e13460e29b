//! What a conversion cannot express is kept in an annotation, and restored on the way back.
//!
//! After a hop from version A to version B, the result is converted back to A. What differs from the original is what B
//! cannot express. It is kept, beside a fingerprint of what stood in its place after the way back. When the object is
//! converted to A again, a kept value is restored in its place if the fingerprint still fits, that is, if nobody changed
//! through B what it belonged to. The rules:
//!
//! - What is restored never changes what B shows. A value that would is dropped.
//! - A field that B cannot express is restored as long as the object that it stood in still exists, or was never
//!   something that B could express.
//! - A value that B expresses in another way (a default, a unit, a spelling) is restored as long as the value that comes
//!   back from B is the same as at the time of the conversion.
//! - An element of a list is recognised by its keys, if every element has its own: the fields that the schema names
//!   (`x-kubernetes-list-map-keys`), or else `name`. An element that B cannot express is inserted behind the one that it
//!   followed. The order of the elements is restored if nobody changed it through B.
//! - An element of any other list is recognised by its content: what was kept of it is dropped when it was changed.
//! - A list without keys that comes back from B with another length or in another order is kept as a whole, and restored
//!   if nobody changed it.
//! - What is kept for other versions is carried along.

mod annotation;
mod compare;
mod fingerprint;
mod key;
mod restore;
mod tree;

pub use annotation::ANNOTATION;
pub(crate) use annotation::{Sections, json_length};
pub(crate) use compare::{Counterpart, compare};
pub(crate) use restore::restore;
pub(crate) use tree::{Entry, Kept, Pattern, is_deeper, pattern_text};

#[cfg(test)]
mod tests;
