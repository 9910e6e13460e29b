//! Connections, and the vocabulary of HTTP requests and responses that everything above shares.

pub mod body;
pub mod json;
pub mod limits;
pub mod listen;
pub mod negotiation;
pub mod options;
pub mod request_info;
pub mod shares;
pub mod status;
pub mod tls;
pub mod warnings;
