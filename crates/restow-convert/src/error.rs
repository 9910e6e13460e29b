//! Why an object cannot be converted.

/// Why an object cannot be converted. The message is what the client of the API server reads.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object has no apiVersion and kind, or no metadata.
    #[error("not a Kubernetes object: {0}")]
    NotAnObject(&'static str),
    /// The object is of another kind than the converter is for.
    #[error("expected {expected}, found {found}")]
    WrongKind {
        /// The kind and group of the converter.
        expected: String,
        /// The kind and group of the object.
        found: String,
    },
    /// The converter does not know the version.
    #[error("unknown version {version}; known versions: {}", known.join(", "))]
    UnknownVersion {
        /// The version of the object, or the wanted one.
        version: String,
        /// The versions that the converter knows, the oldest first.
        known: Vec<String>,
    },
    /// The object does not fit the type of its version.
    #[error("the object is not a valid {version}")]
    Invalid {
        /// The version as which the object was read.
        version: String,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// The converter refused the object.
    #[error("cannot convert from {from} to {to}")]
    Refused {
        /// The version of the object.
        from: String,
        /// The neighbouring version.
        to: String,
        /// What the converter said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The converter changed metadata other than labels and annotations.
    #[error(
        "the conversion from {from} to {to} changed metadata.{field}; only labels and annotations may change"
    )]
    MetadataChanged {
        /// The version of the object.
        from: String,
        /// The neighbouring version.
        to: String,
        /// The field of the metadata.
        field: String,
    },
    /// More would have to be kept than fits into the annotation.
    #[error(
        "{to} cannot express {} of {from}, and keeping it in an annotation takes {bytes} bytes; the limit is {limit}",
        paths.join(", ")
    )]
    TooMuchToKeep {
        /// The version whose fields would be lost.
        from: String,
        /// The version that cannot express them.
        to: String,
        /// The size of the annotation.
        bytes: usize,
        /// The size that is allowed.
        limit: usize,
        /// The largest of these fields.
        paths: Vec<String>,
    },
}

/// An error followed by its causes, from the outermost to the first one, in one line.
pub fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"))
}
