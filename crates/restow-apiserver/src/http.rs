//! Connections, and the vocabulary of HTTP requests and responses that everything above shares.

pub(crate) mod body;
pub(crate) mod json;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod negotiation;
pub(crate) mod options;
pub(crate) mod query;
pub(crate) mod request_info;
pub(crate) mod response;
pub(crate) mod status;
pub(crate) mod tls;
pub(crate) mod warnings;
