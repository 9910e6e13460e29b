//! What the prefix of a value says about its encryption.

use std::fmt;

use crate::wire::{Field, Fields};

/// The first bytes of all encrypted values.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// The longest name of a key or plugin that is shown.
const MAX_NAME: usize = 253;

/// How a value is encrypted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encryption {
    /// It is not.
    Identity,
    /// With a key of an encryption configuration.
    Key {
        /// `aescbc`, `aesgcm` or `secretbox`.
        provider: &'static str,
        /// The name of the key.
        name: String,
    },
    /// By a KMS plugin.
    Kms {
        /// `v1` or `v2`.
        version: &'static str,
        /// The name of the plugin.
        plugin: String,
        /// The plugin's name of the key, in v2.
        key_id: Option<String>,
    },
}

impl Encryption {
    /// Reads the prefix of a value; otherwise what is wrong with it.
    pub fn parse(value: &[u8]) -> Result<Self, &'static str> {
        let Some(rest) = value.strip_prefix(ENCRYPTED) else { return Ok(Self::Identity) };
        let mut parts = rest.splitn(4, |byte| *byte == b':');
        let (provider, version, name) = (parts.next(), parts.next(), parts.next());
        let content = parts.next().ok_or("its encryption prefix is cut short")?;
        let name = name.and_then(printable).ok_or("its encryption prefix has no readable name")?;
        let key = |provider| Ok(Self::Key { provider, name: name.clone() });
        match (provider.unwrap_or_default(), version.unwrap_or_default()) {
            (b"aescbc", b"v1") => key("aescbc"),
            (b"aesgcm", b"v1") => key("aesgcm"),
            (b"secretbox", b"v1") => key("secretbox"),
            (b"kms", b"v1") => Ok(Self::Kms { version: "v1", plugin: name, key_id: None }),
            (b"kms", b"v2") => Ok(Self::Kms { version: "v2", plugin: name, key_id: Some(key_id(content)?) }),
            _ => Err("its encryption provider is unknown"),
        }
    }
}

/// The key in the `EncryptedObject` of KMS v2.
fn key_id(object: &[u8]) -> Result<String, &'static str> {
    const BROKEN: &str = "it is not an encrypted object of KMS v2";
    let mut found = None;
    for field in Fields::new(object) {
        if let (2, Field::Bytes(id)) = field.ok_or(BROKEN)? {
            found = Some(printable(id).ok_or(BROKEN)?);
        }
    }
    found.ok_or(BROKEN)
}

/// A name that may be shown.
fn printable(name: &[u8]) -> Option<String> {
    let is_ok = !name.is_empty() && name.len() <= MAX_NAME && name.iter().all(u8::is_ascii_graphic);
    is_ok.then(|| String::from_utf8_lossy(name).into_owned())
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity => f.write_str("identity"),
            Self::Key { provider, name } => write!(f, "{provider}:{name}"),
            Self::Kms { version, plugin, key_id: None } => write!(f, "kms:{version}:{plugin}"),
            Self::Kms { version, plugin, key_id: Some(id) } => write!(f, "kms:{version}:{plugin}:{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Encryption;

    #[test]
    fn the_prefix_names_the_provider_and_the_key() {
        for (value, expected) in [
            (&b"{}"[..], Ok("identity")),
            (b"", Ok("identity")),
            (b"k8s:encoded", Ok("identity")),
            (b"k8s:enc:aescbc:v1:key1:\x00\xff:", Ok("aescbc:key1")),
            (b"k8s:enc:aesgcm:v1:key2:x", Ok("aesgcm:key2")),
            (b"k8s:enc:secretbox:v1:a-b.c:", Ok("secretbox:a-b.c")),
            (b"k8s:enc:kms:v1:plugin:xxx", Ok("kms:v1:plugin")),
            (b"k8s:enc:kms:v2:plugin:\x0a\x02xx\x12\x04id-7\x1a\x01d", Ok("kms:v2:plugin:id-7")),
            (b"k8s:enc:kms:v2:plugin:\x0a\x02xx", Err("it is not an encrypted object of KMS v2")),
            (b"k8s:enc:aescbc:v2:key1:x", Err("its encryption provider is unknown")),
            (b"k8s:enc:rot13:v1:key1:x", Err("its encryption provider is unknown")),
            (b"k8s:enc:aescbc:v1:key1", Err("its encryption prefix is cut short")),
            (b"k8s:enc:aescbc:v1::x", Err("its encryption prefix has no readable name")),
            (b"k8s:enc:aescbc:v1:\xff:x", Err("its encryption prefix has no readable name")),
        ] {
            let found = Encryption::parse(value).map(|found| found.to_string());
            assert_eq!(found, expected.map(str::to_owned), "{}", value.escape_ascii());
        }
    }
}
