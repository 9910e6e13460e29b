//! The verbs on resources: get, create, update, patch, delete, list and watch.

pub mod api;
pub mod list;
pub mod objects;
pub mod payload;
pub mod review;
pub mod selection;
pub mod view;
pub mod watch;
pub mod workers;
