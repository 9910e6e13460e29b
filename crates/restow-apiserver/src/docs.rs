//! Endpoints that describe the server: discovery, OpenAPI, health and metrics.

pub(crate) mod discovery;
pub(crate) mod endpoints;
pub(crate) mod groups;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod openapi;
