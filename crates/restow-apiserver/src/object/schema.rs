//! The structural schema of a custom resource's version, read once and then asked about every object.
//!
//! The order in which a server is to call it on what it was sent: [`Schema::prune`], [`Schema::fill`], and, with
//! metadata checked, [`Schema::check_create`], [`Schema::check_update`] or [`Schema::check_status`].

mod check;
mod embedded;
mod fill;
pub(crate) mod format;
mod lists;
mod model;
pub(crate) mod path;
pub(crate) mod pattern;
mod prune;
pub(crate) mod rule;
mod rules;
pub(crate) mod strict;
mod validate;

pub(crate) use model::{ListType, Schema};

#[cfg(test)]
mod tests;
