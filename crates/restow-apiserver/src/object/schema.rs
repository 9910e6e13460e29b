//! The structural schema of a version of a custom resource, parsed once and applied to every object.
//!
//! A server applies it to a sent object in this order: [`Schema::prune`], [`Schema::set_defaults`], and, with
//! metadata checked, [`Schema::check_create`], [`Schema::check_update`] or [`Schema::check_status`].

mod check;
mod defaults;
mod embedded;
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

pub(crate) use model::Schema;

#[cfg(test)]
mod tests;
