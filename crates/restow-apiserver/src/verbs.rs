//! The verbs on resources: get, create, update, patch, delete, list and watch.

pub(crate) mod api;
pub(crate) mod apply;
pub(crate) mod create;
pub(crate) mod decode;
pub(crate) mod delete;
pub(crate) mod document_cache;
pub(crate) mod field_managers;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod namespace_lifecycle;
pub(crate) mod payload;
pub(crate) mod query;
pub(crate) mod request;
pub(crate) mod review;
pub(crate) mod selection;
pub(crate) mod store_health;
pub(crate) mod strategy;
pub(crate) mod update;
pub(crate) mod view;
pub(crate) mod watch;
pub(crate) mod workers;
pub(crate) mod write;
