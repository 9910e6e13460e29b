//! The client: one API server behind one address, plain requests to it, and the pace of writes.

pub mod access;
mod error;
mod heard;
mod server;
mod throttle;
pub(crate) mod wire;

pub use error::{Broken, RequestError, plain};
pub use server::Server;
pub(crate) use server::{METADATA, METADATA_LIST, Reply, within};
pub(crate) use throttle::Slot;
pub use throttle::Throttle;
