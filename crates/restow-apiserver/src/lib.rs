//! A small, real Kubernetes API server: for tests, demonstrations and authors of operators.
//!
//! A request passes the modules in this order; each uses only those below it in the table:
//!
//! | module | what it does |
//! |---|---|
//! | `server` | starts, serves and stops; the network, the data directory, the dispatch of requests |
//! | `controllers` | what runs in the background: CRDs, namespaces, garbage collection, expiry of Events |
//! | `filters` | authentication, authorization, limits and audit of requests from the network |
//! | `docs` | discovery, OpenAPI, health and metrics |
//! | `verbs` | get, create, update, patch, delete, list and watch |
//! | `registry` | the resources that are served: built-in kinds, custom resources, conversion |
//! | `auth` | tokens, impersonation, RBAC, the review APIs |
//! | `object` | objects as JSON values: metadata, patches, schemas, selectors, codecs |
//! | `http` | connections, TLS, and the vocabulary of requests and responses |

#[cfg(test)]
mod arbitrary;
pub mod auth;
mod controllers;
pub mod docs;
pub mod filters;
pub mod http;
pub mod object;
pub mod private_file;
pub mod registry;
pub mod server;
pub mod verbs;

pub use crate::auth::authentication::{Tokens, User};
pub use crate::filters::audit::Audit;
pub use crate::http::limits::AtOnce;
pub use crate::http::listen::serve;
pub use crate::http::tls::{Authority, Serving, TlsError, random_hex};
pub use crate::server::data_dir::{self, Credentials, DataDir, DataDirError};
pub use crate::server::network::{Network, NetworkError};
pub use crate::server::{Server, Settings, StartError};
