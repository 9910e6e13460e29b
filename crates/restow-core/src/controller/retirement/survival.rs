//! Whether objects survive the conversion that a rewrite makes, and from which versions it converts.

use crate::resource::inventory::Crd;

/// What is known about the conversion to the version that objects will be stored in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Survival {
    /// No object was converted yet.
    #[default]
    Unchecked,
    /// Every object comes back from that version as it was, and fits its schema.
    Proven,
    /// Some objects do not: which ones, and what they would lose.
    Lossy(Vec<String>),
    /// It could not be checked, for this reason.
    Unknown(String),
}

/// The versions from which a rewrite converts objects to another one: all that objects may be stored in.
pub fn rewritten_from(crd: &Crd, to: &str) -> Vec<String> {
    let mut from: Vec<String> =
        crd.stored_versions.iter().filter(|version| *version != to).cloned().collect();
    if crd.storage_version != to && !from.contains(&crd.storage_version) {
        from.push(crd.storage_version.clone());
    }
    from
}
