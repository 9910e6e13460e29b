//! Converters from ConversionRules objects of the cluster, which are followed while the webhook runs.
//!
//! [`plan`] decides what is served and what is wrong with the rest, [`replicas`] whether every replica serves it, and
//! [`RulesFollower`] watches, swaps and reports.

mod definitions;
mod follower;
mod objects;
pub mod plan;
pub mod replicas;
mod status;
mod watches;

pub use follower::RulesFollower;
pub use objects::Registration;
