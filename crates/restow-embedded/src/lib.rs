//! A small, real Kubernetes API server: for tests, demonstrations and operators' authors.

#[cfg(test)]
mod arbitrary;
pub mod audit;
pub mod authentication;
pub mod authorization;
pub mod data_dir;
pub mod failure;
pub mod kubeconfig;
pub mod limits;
pub mod listen;
pub mod meta;
pub mod patch;
pub mod private_file;
pub mod selector;
pub mod tls;
