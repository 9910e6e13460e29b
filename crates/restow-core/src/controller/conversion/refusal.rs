//! Why a Conversion is not carried out, or not yet.

use restow_api::Reason;

use super::definition::Definition;

/// Why a Conversion is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No CustomResourceDefinition defines the kind.
    #[error("no CustomResourceDefinition defines {kind} of {group}; create it first")]
    Undefined {
        /// The kind.
        kind: String,
        /// Its API group.
        group: String,
    },
    /// The definition is not served yet, or is being deleted.
    #[error("the CustomResourceDefinition {0} is {1}")]
    NotEstablished(String, &'static str),
    /// The definition was deleted and created again.
    #[error(
        "the CustomResourceDefinition {0} was deleted and created again; create another Conversion for it"
    )]
    Replaced(String),
    /// The definition does not have a version.
    #[error("{definition} has no version {version}; it has {}", known.join(", "))]
    UnknownVersion {
        /// The name of the definition.
        definition: String,
        /// The version that it does not have.
        version: String,
        /// The versions that it has.
        known: Vec<String>,
    },
    /// Objects are stored in a third version.
    #[error(
        "{definition} is stored in {storage}, and not in {old}; create a Conversion with oldVersion {storage}"
    )]
    OtherVersion {
        /// The name of the definition.
        definition: String,
        /// Its storage version.
        storage: String,
        /// The version that the Conversion begins with.
        old: String,
    },
    /// The new version is not served.
    #[error(
        "{version} of {definition} is not served, so nobody could read its objects; set served: true first"
    )]
    NewNotServed {
        /// The name of the definition.
        definition: String,
        /// The new version.
        version: String,
    },
    /// The old version is not served, and its objects cannot be checked.
    #[error(
        "{version} of {definition} is not served, so it cannot be checked whether its objects survive; serve it until the \
         conversion is done, or rewrite the objects without this check with restow migrate"
    )]
    OldNotServed {
        /// The name of the definition.
        definition: String,
        /// The old version.
        version: String,
    },
    /// A conversion in place to a version has begun and not ended.
    #[error(
        "some objects of {definition} are converted in place to {version} and others are not; create a Conversion to {version} \
         with convertInPlace: true, which converts the others, and go on when it has succeeded"
    )]
    HalfConverted {
        /// The name of the definition.
        definition: String,
        /// The version that objects are converted to.
        version: String,
    },
    /// Somebody changed the storage version meanwhile.
    #[error(
        "the storage version of {definition} was changed to {storage} by another client; the Conversion was to {new}"
    )]
    Superseded {
        /// The name of the definition.
        definition: String,
        /// The storage version now.
        storage: String,
        /// The version that the Conversion had set.
        new: String,
    },
}

impl Refusal {
    /// The reason of the condition.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Undefined { .. } | Self::NotEstablished(..) => Reason::DefinitionMissing,
            Self::Replaced(_) => Reason::DefinitionChanged,
            Self::UnknownVersion { .. } | Self::OtherVersion { .. } => Reason::UnknownVersion,
            Self::NewNotServed { .. } | Self::OldNotServed { .. } => Reason::VersionNotServed,
            Self::Superseded { .. } => Reason::Superseded,
            Self::HalfConverted { .. } => Reason::ConvertingInPlace,
        }
    }

    /// Whether to wait for a while, because a definition may just be being created.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Undefined { .. } | Self::NotEstablished(..))
    }

    pub(super) fn unknown(definition: &Definition, version: &str) -> Self {
        Self::UnknownVersion {
            definition: definition.name.to_string(),
            version: version.to_owned(),
            known: definition.versions.iter().map(|version| version.name.clone()).collect(),
        }
    }
}
