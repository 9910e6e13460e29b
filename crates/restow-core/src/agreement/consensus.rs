//! What the API servers together say of one property of a resource.

/// What the API servers say of how a resource is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consensus {
    /// All say this.
    Agreed(String),
    /// They say different things.
    Split(Vec<String>),
    /// Not all could be asked; those that could say this.
    Silent(Vec<String>),
}
