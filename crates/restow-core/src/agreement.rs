//! Whether all API servers agree on how a resource is stored: in which version, and under which encryption configuration.

pub mod basis;
pub mod consensus;
pub mod encryption;
pub mod identity;
pub mod member;
pub(crate) mod metric;
pub mod transient;
pub mod version;
