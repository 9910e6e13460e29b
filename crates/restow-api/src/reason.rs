//! The reasons that conditions, Events and metrics give.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Why a condition holds, an Event was sent or a migration was created.
        ///
        /// Other controllers write other reasons, so objects have text: see `MigrationCondition::reason`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// Every reason, in alphabetical order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The text in conditions and Events.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

reasons! {
    /// Another controller writes StorageStates.
    AnotherController,
    /// The API of the built-in migrator is not served.
    BackendNotServed,
    /// All objects survive a conversion to the new version and back.
    Checked,
    /// Every object is converted to the new version and back.
    Checking,
    /// The API server refused to change the CustomResourceDefinition.
    ConversionRefused,
    /// A Conversion is done: all objects are stored in the new version.
    Converted,
    /// Rules have converted all objects.
    ConvertedInPlace,
    /// Rules convert every object, and no migration may run meanwhile.
    ConvertingInPlace,
    /// The CustomResourceDefinition was changed meanwhile.
    DefinitionChanged,
    /// Helm, Argo CD or Flux manages the CustomResourceDefinition.
    DefinitionManaged,
    /// No CustomResourceDefinition defines the kind, or it is not established.
    DefinitionMissing,
    /// The migration of the built-in controller failed.
    DelegateFailed,
    /// The name of the delegate belongs to another migration.
    DelegateNameTaken,
    /// The API server refused the delegate.
    DelegateRefused,
    /// The built-in controller rewrites the objects.
    Delegated,
    /// The API servers do not agree on how the resource is stored.
    Disagreement,
    /// The encryption configuration changed.
    EncryptionChanged,
    /// An API server used another encryption configuration between two observations.
    EncryptionChangedTwice,
    /// The encryption configuration can no longer be observed.
    EncryptionUnseen,
    /// The encryption configuration was not observed until now.
    EncryptionUnwatched,
    /// Objects would not survive a conversion to the new version and back.
    FieldsLost,
    /// restow lacks a permission.
    Forbidden,
    /// Another controller wrote the StorageState.
    ForeignState,
    /// The spec cannot be carried out as it is written.
    InvalidSpec,
    /// The API server refused to list the objects.
    ListRefused,
    /// A migration was verified.
    Migrated,
    /// The name of the migration to adopt with belongs to another one.
    NameTaken,
    /// The resource has no StorageState yet.
    NewResource,
    /// The resource cannot be migrated.
    NotMigratable,
    /// `storedVersions` could not be pruned.
    NotPruned,
    /// No API server serves the resource.
    NotServed,
    /// `storedVersions` was pruned.
    Pruned,
    /// The API server refused to rewrite some objects.
    Quarantined,
    /// The migration waits for its turn.
    Queued,
    /// Objects were rewritten again in every pass, or API servers kept restarting.
    Restless,
    /// A failed migration is replaced.
    Retried,
    /// A failed migration will be replaced.
    RetryPlanned,
    /// Quarantined objects are tried again.
    Retrying,
    /// Objects are being rewritten.
    Rewriting,
    /// The ConversionRules do not fit the CustomResourceDefinition.
    RulesInvalid,
    /// The old version is no longer served.
    ServingStopped,
    /// The StorageState was not renewed for too long.
    StaleHeartbeat,
    /// The migration started.
    Started,
    /// The controller stops; another one resumes the migration.
    Stopped,
    /// The storage version changed.
    StorageVersionChanged,
    /// Objects were stored in another version between two observations.
    StorageVersionChangedTwice,
    /// The new version is the storage version.
    StorageVersionSet,
    /// A migration was deleted because another one replaces it.
    Superseded,
    /// `spec.suspend` is true.
    Suspended,
    /// A Conversion was tried on a part of the objects.
    Tried,
    /// The API server does not accept the credentials.
    Unauthorized,
    /// The CustomResourceDefinition does not have the version, or another one is stored.
    UnknownVersion,
    /// The verifying pass left something unproven.
    Unverified,
    /// Every object is stored in the current version and under the current key.
    Verified,
    /// A second pass checks every object.
    Verifying,
    /// A version that is needed is not served.
    VersionNotServed,
    /// A version is no longer served, and managedFields may refer to it.
    VersionRetired,
    /// The migration waits for the API servers to agree.
    WaitingForAgreement,
    /// The migration waits for an API server.
    WaitingForServer,
    /// The conversion webhook does not answer, or cannot be called.
    WebhookUnavailable,
}

/// The text is none of restow's reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownReason;

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text).ok_or(UnknownReason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_round_trips() {
        for reason in Reason::ALL {
            assert_eq!(reason.to_string().parse(), Ok(*reason));
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
        assert_eq!("MigrationCompleted".parse::<Reason>(), Err(UnknownReason));
        assert!(Reason::ALL.is_sorted_by_key(|reason| reason.as_str()));
    }
}
