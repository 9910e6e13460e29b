//! A conversion webhook for custom resources: it serves converters, keeps its own certificates, and registers itself in CRDs.
