//! Encryption at rest, as kube-apiserver does it: its configuration file, its prefixes, its bytes.
//!
//! Pure: what is stored under a key, sealed and opened. A server of either kind reads what the other one wrote.
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
//! let sealed = secrets.seal("/registry/secrets/default/a", "plain".into())?;
//! assert!(sealed.starts_with(b"k8s:enc:secretbox:v1:key1:"));
//! let opened = secrets.open("/registry/secrets/default/a", sealed)?;
//! assert_eq!((&opened.plain[..], opened.stale), (&b"plain"[..], false));
//! # Ok(()) }
//! ```

mod cipher;
mod configuration;
mod reload;

use std::{collections::HashMap, fmt, sync::Arc};

use bytes::Bytes;
use sha2::{Digest, Sha256};

pub use configuration::ConfigurationError;
pub use reload::{Follower, LoadError, follow};

use cipher::Cipher;

/// What all that is sealed begins with.
const SEALED: &[u8] = b"k8s:enc:";

/// How each resource is kept.
pub struct Transformers {
    rules: HashMap<Resource, Transformer>,
    plain: Transformer,
    hash: String,
}

/// A resource and its group; either may be `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Resource {
    resource: String,
    group: String,
}

/// How one resource is kept: sealed with the first key, opened with any.
#[derive(Clone)]
pub struct Transformer {
    keys: Arc<[Key]>,
}

/// One way to keep it.
#[derive(Clone)]
struct Key {
    /// What all that is sealed with it begins with; nothing for plain text.
    prefix: String,
    cipher: Option<Arc<dyn Cipher>>,
}

/// What was stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Opened {
    /// The bytes themselves.
    pub plain: Bytes,
    /// Whether it would be kept in another way if it were written now.
    pub stale: bool,
}

/// Why bytes were not sealed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The system has no random bytes.
    #[error("no random bytes to seal {path} with")]
    NoRandomness {
        /// The key of the store.
        path: String,
    },
    /// None of the keys has sealed it.
    #[error("none of the configured keys opens {path}, which is under {under}")]
    NoKey {
        /// The key of the store.
        path: String,
        /// The provider and key it says it is sealed with.
        under: String,
    },
    /// The right key, and yet it does not open.
    #[error("{path} does not open with {under}: it was changed, cut short, or sealed for another place")]
    Changed {
        /// The key of the store.
        path: String,
        /// The provider and key it says it is sealed with.
        under: String,
    },
}

impl Transformers {
    /// What a configuration file says.
    pub fn parse(file: &[u8]) -> Result<Self, ConfigurationError> {
        let rules = configuration::parse(file)?;
        let rules = rules.into_iter().map(|(resource, keys)| (resource, Transformer { keys: keys.into() }));
        Ok(Self { rules: rules.collect(), hash: hash(file), ..Self::default() })
    }

    /// How a resource of a group (empty for the core group) is kept.
    pub fn of(&self, group: &str, resource: &str) -> &Transformer {
        let rule = |resource: &str, group: &str| {
            self.rules.get(&Resource { resource: resource.to_owned(), group: group.to_owned() })
        };
        rule(resource, group).or_else(|| rule("*", group)).or_else(|| rule("*", "*")).unwrap_or(&self.plain)
    }

    /// The hash by which kube-apiserver names a configuration it has taken up.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

impl Default for Transformers {
    /// All in plain text.
    fn default() -> Self {
        let plain = Key { prefix: String::new(), cipher: None };
        Self { rules: HashMap::new(), plain: Transformer { keys: [plain].into() }, hash: String::new() }
    }
}

impl Transformer {
    /// What to store under a key.
    pub fn seal(&self, path: &str, plain: Bytes) -> Result<Bytes, SealError> {
        let Some(Key { prefix, cipher: Some(cipher) }) = self.keys.first() else { return Ok(plain) };
        let mut sealed = prefix.as_bytes().to_vec();
        match cipher.seal(path.as_bytes(), &plain, &mut sealed) {
            Some(()) => Ok(sealed.into()),
            None => Err(SealError::NoRandomness { path: path.to_owned() }),
        }
    }

    /// What is stored under a key.
    pub fn open(&self, path: &str, stored: Bytes) -> Result<Opened, SealError> {
        let mut tried = false;
        for (at, key) in self.keys.iter().enumerate() {
            let stale = at != 0;
            match &key.cipher {
                None if stored.starts_with(SEALED) => {}
                None => return Ok(Opened { plain: stored, stale }),
                Some(cipher) => {
                    let Some(sealed) = stored.strip_prefix(key.prefix.as_bytes()) else { continue };
                    // Two keys may have one name: the wrong one does not keep the right one from being tried.
                    tried = true;
                    if let Some(plain) = cipher.open(path.as_bytes(), sealed) {
                        return Ok(Opened { plain: plain.into(), stale });
                    }
                }
            }
        }
        let (path, under) = (path.to_owned(), under(&stored));
        Err(if tried { SealError::Changed { path, under } } else { SealError::NoKey { path, under } })
    }
}

/// The provider and key that stored bytes begin with.
fn under(stored: &[u8]) -> String {
    let Some(rest) = stored.strip_prefix(SEALED) else { return "plain text".to_owned() };
    let parts: Vec<_> = rest.splitn(4, |byte| *byte == b':').collect();
    match parts.as_slice() {
        [provider, version, key, _] if key.len() <= 253 => {
            let text = |part: &[u8]| part.escape_ascii().to_string();
            format!("{}:{}:{}", text(provider), text(version), text(key))
        }
        _ => "no key that could be read".to_owned(),
    }
}

fn hash(file: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(file))
}

// Keys are never shown.
impl fmt::Debug for Transformers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transformers")
            .field("rules", &self.rules)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Transformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| &key.prefix)).finish()
    }
}

// Nor is what they seal.
impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("stale", &self.stale).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
