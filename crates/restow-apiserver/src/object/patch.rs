//! Patches: merge (RFC 7386), JSON (RFC 6902) and strategic merge, as kube-apiserver applies them. Applied configurations
//! are merged by restow-apply.

pub(crate) mod json;
pub(crate) mod merge;
pub(crate) mod strategic;

/// The media type of a merge patch.
pub(crate) const MERGE: &str = "application/merge-patch+json";
/// The media type of a JSON patch.
pub(crate) const JSON: &str = "application/json-patch+json";
/// The media type of an applied configuration.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
/// The media type of a strategic merge patch.
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
