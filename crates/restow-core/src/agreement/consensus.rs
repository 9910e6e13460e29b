//! What the API servers report together about one property of a resource: its storage version or its encryption key.

/// What the API servers report about how a resource is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consensus {
    /// All report this hash.
    Agreed(String),
    /// They report different hashes.
    Split(Vec<String>),
    /// Some did not answer; the others report these hashes.
    Silent(Vec<String>),
}
