//! The versions of `examples/operator` without code: a CRD and rules. The tests of this crate try the rules.

/// The CRD.
pub const CRD: &str = include_str!("../crd.yaml");
/// The rules between its versions.
pub const RULES: &str = include_str!("../rules.yaml");
