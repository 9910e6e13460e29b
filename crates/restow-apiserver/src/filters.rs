//! The filters that every request from the network passes before it reaches a handler.

pub mod audit;
pub mod chain;
