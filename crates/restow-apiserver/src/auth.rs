//! Authentication and authorization: tokens, impersonation, RBAC and the review APIs.

pub(crate) mod access;
pub(crate) mod attributes;
pub(crate) mod authentication;
pub(crate) mod impersonation;
pub(crate) mod rbac;
pub(crate) mod user;
