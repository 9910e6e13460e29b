//! What a conversion webhook answers.

#![allow(clippy::unwrap_used)]

mod answers;
mod fixture;
mod hostile;
mod refusals;
#[path = "../../fuzz/target.rs"]
mod target;
mod untouched;
