//! Authentication and authorization: tokens, impersonation, RBAC and the review APIs.

pub mod access;
pub mod authentication;
pub mod rbac;
