//! How the objects of each resource are encrypted and decrypted.

use std::{collections::HashMap, fmt, sync::Arc};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use secrecy::zeroize::Zeroizing;

use super::configuration::{self, ConfigurationError, Key, Plugins, Resource};

/// The first bytes of all encrypted values.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// How the objects of each resource are encrypted.
pub struct Transformers {
    rules: HashMap<Resource, Transformer>,
    plain: Transformer,
    hash: String,
}

/// How the objects of one resource are encrypted: with the first key. They are decrypted with any key.
#[derive(Clone)]
pub struct Transformer {
    keys: Arc<[Key]>,
}

/// Plain bytes that are wiped when they are dropped.
type Plain = Zeroizing<Vec<u8>>;

/// A decrypted value.
#[derive(Clone, PartialEq, Eq)]
pub struct Decrypted {
    /// The plain bytes.
    pub plain: Bytes,
    /// Whether a write would encrypt it in another way now.
    pub stale: bool,
}

/// Why a value could not be encrypted or decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncryptionError {
    /// The system has no random bytes.
    #[error("cannot encrypt {path}: the system has no random bytes")]
    NoRandomness {
        /// The key of the store.
        path: String,
    },
    /// No configured key has encrypted it.
    #[error("cannot decrypt {path}: its key {under} is not configured")]
    NoKey {
        /// The key of the store.
        path: String,
        /// The provider and key that its prefix names.
        under: String,
    },
    /// The key is configured, but does not decrypt the value.
    #[error("cannot decrypt {path} with {under}: it was changed, truncated, or encrypted for another path")]
    Changed {
        /// The key of the store.
        path: String,
        /// The provider and key that its prefix names.
        under: String,
    },
}

impl Transformers {
    /// Parses a configuration file. One that names a KMS plugin is refused, because its values could not be read.
    pub fn parse(file: &[u8]) -> Result<Self, ConfigurationError> {
        Self::parse_with(file, Plugins::Refused)
    }

    /// Parses a configuration file for looking at stored values. Those of KMS plugins can be recognized and not decrypted.
    pub fn parse_to_inspect(file: &[u8]) -> Result<Self, ConfigurationError> {
        Self::parse_with(file, Plugins::Recognized)
    }

    fn parse_with(file: &[u8], plugins: Plugins) -> Result<Self, ConfigurationError> {
        let rules = configuration::parse(file, plugins)?;
        let rules = rules.into_iter().map(|(resource, keys)| (resource, Transformer { keys: keys.into() }));
        Ok(Self { rules: rules.collect(), hash: hash(file), ..Self::default() })
    }

    /// How a resource of a group (empty for the core group) is encrypted.
    pub fn of(&self, group: &str, resource: &str) -> &Transformer {
        let rule = |resource: &str, group: &str| {
            self.rules.get(&Resource { resource: resource.to_owned(), group: group.to_owned() })
        };
        rule(resource, group).or_else(|| rule("*", group)).or_else(|| rule("*", "*")).unwrap_or(&self.plain)
    }

    /// The hash under which kube-apiserver reports the configuration.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

impl Default for Transformers {
    /// Everything in plain text.
    fn default() -> Self {
        let plain = Key { prefix: String::new(), cipher: None };
        Self { rules: HashMap::new(), plain: Transformer { keys: [plain].into() }, hash: String::new() }
    }
}

impl Transformer {
    /// Encrypts a value for a path.
    pub fn encrypt(&self, path: &str, plain: Bytes) -> Result<Bytes, EncryptionError> {
        let Some(Key { prefix, cipher: Some(cipher) }) = self.keys.first() else { return Ok(plain) };
        let mut encrypted = prefix.as_bytes().to_vec();
        match cipher.encrypt(path.as_bytes(), &plain, &mut encrypted) {
            Some(()) => Ok(encrypted.into()),
            None => Err(EncryptionError::NoRandomness { path: path.to_owned() }),
        }
    }

    /// Decrypts the value of a path.
    pub fn decrypt(&self, path: &str, stored: Bytes) -> Result<Decrypted, EncryptionError> {
        let (plain, stale) = self.try_keys(path, &stored)?;
        let plain = plain.map_or(stored, |mut plain| std::mem::take(&mut *plain).into());
        Ok(Decrypted { plain, stale })
    }

    /// Decrypts the value of a path into memory that is wiped afterwards; `None` if the value is plain text.
    pub fn reveal(&self, path: &str, stored: &[u8]) -> Result<Option<Plain>, EncryptionError> {
        self.try_keys(path, stored).map(|(plain, _)| plain)
    }

    /// Whether a value is under the key that writes use.
    pub fn is_current(&self, stored: &[u8]) -> bool {
        match self.keys.first() {
            Some(Key { prefix, cipher: Some(_) }) => stored.starts_with(prefix.as_bytes()),
            _ => !stored.starts_with(ENCRYPTED),
        }
    }

    /// The plain bytes, if the value is encrypted, and whether a write would encrypt it in another way now.
    fn try_keys(&self, path: &str, stored: &[u8]) -> Result<(Option<Plain>, bool), EncryptionError> {
        let mut tried = false;
        for (at, key) in self.keys.iter().enumerate() {
            let stale = at != 0;
            match &key.cipher {
                None if stored.starts_with(ENCRYPTED) => {}
                None => return Ok((None, stale)),
                Some(cipher) => {
                    let Some(encrypted) = stored.strip_prefix(key.prefix.as_bytes()) else { continue };
                    // Two keys may have the same name, so the next one is tried too.
                    tried = true;
                    if let Some(plain) = cipher.decrypt(path.as_bytes(), encrypted) {
                        return Ok((Some(Zeroizing::new(plain)), stale));
                    }
                }
            }
        }
        let (path, under) = (path.to_owned(), under(stored));
        Err(if tried {
            EncryptionError::Changed { path, under }
        } else {
            EncryptionError::NoKey { path, under }
        })
    }
}

/// The provider and key in the prefix of a value.
fn under(stored: &[u8]) -> String {
    let Some(rest) = stored.strip_prefix(ENCRYPTED) else { return "plain text".to_owned() };
    let parts: Vec<_> = rest.splitn(4, |byte| *byte == b':').collect();
    match parts.as_slice() {
        [provider, version, key, _] if key.len() <= 253 => {
            let text = |part: &[u8]| part.escape_ascii().to_string();
            format!("{}:{}:{}", text(provider), text(version), text(key))
        }
        _ => "an unreadable prefix".to_owned(),
    }
}

pub(super) fn hash(file: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(file))
}

// Debug shows no keys.
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

// Debug shows no plain bytes.
impl fmt::Debug for Decrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decrypted").field("stale", &self.stale).finish_non_exhaustive()
    }
}
