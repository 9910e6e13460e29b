//! The filters that every request from the network passes before it reaches a handler.

pub(crate) mod audit;
pub(crate) mod chain;
