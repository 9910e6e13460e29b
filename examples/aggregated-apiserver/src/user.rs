//! The user who sends a request.

use std::collections::BTreeMap;

/// Who sends a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// The user name.
    pub name: String,
    /// Unique even if a name is used again.
    pub uid: Option<String>,
    /// To which roles may be bound.
    pub groups: Vec<String>,
    /// Extra attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}
