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
//!
//! A test starts a server in its own process, on a store in a temporary directory:
//!
//! ```
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::Namespace;
//! use restow_apiserver::{Server, ServerSettings};
//! use restow_store::file::{self, FileStore};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let store = FileStore::open(dir.path(), file::FileSettings::default())?;
//! let server = Server::start(ServerSettings::new(Arc::new(store))).await?;
//! let namespaces: kube::Api<Namespace> = kube::Api::all(server.client());
//! assert!(namespaces.get("default").await.is_ok());
//! server.stop().await;
//! # Ok(())
//! # }
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(example()).unwrap();
//! ```

#[cfg(test)]
mod arbitrary;
mod auth;
mod controllers;
mod docs;
mod filters;
mod http;
mod object;
pub mod private_file;
mod registry;
mod server;
mod verbs;

pub use crate::auth::authentication::Tokens;
pub use crate::auth::user::User;
pub use crate::filters::audit::Audit;
pub use crate::http::limits::InFlightLimits;
pub use crate::http::listen::serve;
pub use crate::http::tls::{CertificateAuthority, ServingCertificate, TlsError, random_hex};
pub use crate::server::data_dir::{self, Credentials, DataDir, DataDirError};
pub use crate::server::network::{ConnectionInfo, Network, NetworkError};
pub use crate::server::{Server, ServerSettings, StartError};
