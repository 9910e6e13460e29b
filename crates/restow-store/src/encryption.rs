//! Encryption at rest that is compatible with kube-apiserver: the same configuration file, prefixes and bytes.
//!
//! Everything here except [`follow`] is pure. kube-apiserver and restow's server can read what the other one wrote.
//!
//! ```
//! use restow_store::encryption::Transformers;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let transformers = Transformers::parse(br#"
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: EncryptionConfiguration
//! resources:
//! - resources: [secrets]
//!   providers:
//!   - secretbox: { keys: [ { name: key1, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE= } ] }
//!   - identity: {}
//! "#)?;
//! let secrets = transformers.of("", "secrets");
//! let encrypted = secrets.encrypt("/registry/secrets/default/a", "plain".into())?;
//! assert!(encrypted.starts_with(b"k8s:enc:secretbox:v1:key1:"));
//! let decrypted = secrets.decrypt("/registry/secrets/default/a", encrypted)?;
//! assert_eq!((&decrypted.plain[..], decrypted.stale), (&b"plain"[..], false));
//! # Ok(()) }
//! ```

mod cipher;
mod configuration;
mod reload;
mod transformer;

pub use configuration::ConfigurationError;
pub use reload::{Follower, LoadError, follow};
pub use transformer::{Decrypted, EncryptionError, Transformer, Transformers};

#[cfg(test)]
mod tests;
