//! Why a review failed.

/// Why a review failed, in one word: a label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The review or one of its objects is too large, or there are too many objects.
    TooLarge,
    /// An object is not a Kubernetes object.
    NotAnObject,
    /// No converter is for the kind, or the review came to another kind's path.
    UnknownKind,
    /// The converter does not know the version.
    UnknownVersion,
    /// The converter refused the object.
    Refused,
    /// The converter panicked.
    Panicked,
    /// The converter changed what it must not change.
    BrokenResult,
    /// The conversion was stopped before its end.
    Stopped,
}

impl Reason {
    /// The value of the label `reason` in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NotAnObject => "not_an_object",
            Self::UnknownKind => "unknown_kind",
            Self::UnknownVersion => "unknown_version",
            Self::Refused => "refused",
            Self::Panicked => "panicked",
            Self::BrokenResult => "broken_result",
            Self::Stopped => "stopped",
        }
    }
}
