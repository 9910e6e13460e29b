//! Serves HTTPS to clients that may be slow, silent or hostile.
//!
//! [`serve`] accepts connections on a listener, within [`Settings`], and gives each request to a tower service. A
//! connection without requests is closed, a response that nobody reads is dropped, no peer can take all connections, and
//! at the end requests in flight are answered. The embedded API server and the conversion webhook listen with it.

mod activity;
mod connections;
mod peers;
mod serve;
mod shares;
mod stall_guard;
mod tls;

pub use serve::{Known, Peer, Settings, serve};
pub use shares::{Share, Shares};
pub use tls::{TlsAcceptor, acceptor};
