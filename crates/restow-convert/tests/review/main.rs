//! What a conversion webhook answers.

#![allow(clippy::unwrap_used)]

mod answers;
mod fixture;
mod hostile;
mod refusals;
