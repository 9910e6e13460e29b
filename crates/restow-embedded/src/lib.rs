//! A small, real Kubernetes API server: for tests, demonstrations and operators' authors.

#[cfg(test)]
mod arbitrary;
pub mod failure;
pub mod meta;
pub mod patch;
pub mod selector;
