//! Role-based access control, decided purely from roles and bindings.
//!
//! `rule`: what one rule allows. `policy`: which rules a user has. `escalation`: whether a user may grant a rule.
//! `review`: the review APIs. `bootstrap`: the default roles and bindings. `live`: a policy that follows the store.

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
pub(crate) use review::{
    ReviewError, ReviewedUser, answer_access_review, answer_rules_review, answer_self_review,
};
pub(crate) use roles::GROUP;
