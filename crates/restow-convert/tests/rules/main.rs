//! Conversion by rules: what each rule does in both directions, what is checked and what is suggested.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod checks;
mod conversions;
mod edits;
mod expressions;
mod fixture;
mod suggestions;
mod trials;
