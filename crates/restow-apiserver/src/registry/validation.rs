//! Validation of built-in kinds, besides their metadata.

pub(crate) mod built_in;
pub(crate) mod role;
pub(crate) mod role_binding;
pub(crate) mod storage_version;
