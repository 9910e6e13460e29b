//! Leases: which process may act, and for how long.
//!
//! | module | what it has |
//! |---|---|
//! | `term` | [`Term`]: the time for which a process may act; it ends by itself |
//! | `stop` | [`Stop`]: carries a term to the work, which checks it before every request |
//! | [`election`] | [`Election`]: one leader among several candidates; its term ends before another can lead |
//! | [`identity`] | [`Identity`]: the Lease that makes an API server known to others; its [`Tenure`] ends before they remove its entries |
//! | [`request`] | requests with a timeout and preconditions |
//!
//! The rules about Leases are in `restow_core::protocol::election`.

pub mod election;
pub mod identity;
pub mod request;
mod stop;
mod term;

pub use election::Election;
pub use identity::{Identity, Tenure};
pub use request::ObjectError;
pub use stop::Stop;
pub use term::{Moment, Term};
