//! The client: one API server behind one address, plain requests to it, and the pace of writes.

pub mod access;
mod answer_history;
mod error;
mod server;
mod throttle;
pub(crate) mod wire;

pub use error::{NoAnswer, RequestError, plain};
pub use server::Server;
pub(crate) use server::{METADATA, METADATA_LIST, Reply, within};
pub(crate) use throttle::Slot;
pub use throttle::Throttle;
