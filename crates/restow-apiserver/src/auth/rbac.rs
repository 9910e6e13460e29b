//! What somebody may do: role-based access control, decided purely from roles and bindings.
//!
//! `rule` says what one rule allows, `policy` which rules are somebody's, `escalation` whether somebody may give a rule
//! away, `review` what the review APIs answer, `bootstrap` what every server has from its start on, and `live` keeps a
//! policy like the store.

mod bootstrap;
mod escalation;
mod live;
mod policy;
mod review;
mod roles;
mod rule;

pub(crate) use bootstrap::{BootstrapObject, bootstrap};
pub(crate) use escalation::permit_write;
pub(crate) use live::LivePolicy;
pub(crate) use policy::Kind;
#[cfg(test)]
pub(crate) use policy::Policy;
pub(crate) use review::{About, ReviewError, answer_access_review, answer_rules_review, answer_self_review};
pub(crate) use roles::GROUP;
