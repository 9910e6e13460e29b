//! The StorageVersion protocol among API servers, and leader election.

pub mod election;
pub mod request;
pub mod storage_version;
pub mod write_gate;
