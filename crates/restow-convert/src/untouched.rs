//! The fields of an object that a conversion neither reads nor changes. They stay text.
//!
//! Most of an object is the same in all versions. What no rule is about, and what the schemas of all versions on the way
//! have in the same shape, is not read, copied, compared and written again: its text goes from the review into the answer.
//!
//! That is done only if it makes no difference. Text with a field that an API server would prune, with nesting that is too
//! deep, or that could be read in two ways, is read like everything else.

mod aside;
mod fields;
mod shape;
mod text;

pub(crate) use aside::Aside;
pub(crate) use fields::Untouched;
pub(crate) use text::read;
