//! Who may act, and for how long, as told by Leases.
//!
//! A [`Term`] is the time for which a process may act; it ends by itself. A [`Stop`] carries it to the work, which asks it
//! before every request. [`Election`] holds one Lease among several candidates: the leader's term ends before another
//! can lead. [`Identity`] holds the Lease that makes an API server known to others; a [`Tenure`] ends before others may
//! take the server for gone.
//!
//! What is decided about Leases is decided in `restow_core::election`.

pub mod election;
pub mod identity;
pub mod request;
mod stop;
mod term;

pub use election::Election;
pub use identity::{Identity, Tenure};
pub use request::RequestError;
pub use stop::Stop;
pub use term::{Moment, Term};
