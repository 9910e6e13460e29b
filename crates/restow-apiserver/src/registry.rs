//! The resources that the server serves: built-in kinds and custom resources.

pub(crate) mod built_in;
pub(crate) mod conversion;
pub(crate) mod custom_resource;
pub(crate) mod definition;
pub(crate) mod resource;
pub(crate) mod reviews;
pub(crate) mod served;
pub(crate) mod validation;
pub(crate) mod webhook;
