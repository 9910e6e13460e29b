//! The resources that the server serves: built-in kinds and custom resources.

pub mod built_in;
pub mod conversion;
pub mod custom_resource;
pub mod definition;
pub mod served;
pub mod webhook;
