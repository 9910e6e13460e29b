//! What somebody may do: role-based access control, decided purely from roles and bindings.
//!
//! `rule` says what one rule allows, `policy` which rules are somebody's, `escalation` whether somebody may give a rule
//! away, `review` what the review APIs answer, `bootstrap` what every server has from its start on, and `live` keeps a
//! policy like the store.

mod attributes;
mod bootstrap;
mod escalation;
mod live;
mod policy;
mod review;
mod roles;
mod rule;

pub use attributes::{Attributes, On, ResourceAttributes};
pub use bootstrap::{BootstrapObject, bootstrap};
pub use escalation::{Escalation, permit_write};
pub use live::LivePolicy;
pub use policy::{Grant, Kind, Policy};
pub use review::{About, ReviewError, answer_access_review, answer_rules_review, answer_self_review};
pub use rule::Rule;

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
