//! Patches: merge (RFC 7386), JSON (RFC 6902) and strategic merge, as kube-apiserver applies them.

pub mod json;
pub mod merge;
pub mod strategic;

pub use merge::merge;

/// The media type of a merge patch.
pub const MERGE: &str = "application/merge-patch+json";
/// The media type of a JSON patch.
pub const JSON: &str = "application/json-patch+json";
/// The media type of a strategic merge patch.
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
