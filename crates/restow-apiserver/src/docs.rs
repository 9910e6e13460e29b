//! Endpoints that describe the server: discovery, OpenAPI, health and metrics.

pub mod discovery;
pub mod health;
pub mod metrics;
pub mod openapi;
