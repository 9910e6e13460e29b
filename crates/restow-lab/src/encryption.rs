//! Encryption configurations.

use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

/// The content of an encryption configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption(String);

impl Encryption {
    /// Secrets under AES-CBC with these keys: the first one writes, all of them read, and plain text is read too.
    ///
    /// A key's bytes follow from its name, so that a name means the same key in every configuration.
    pub fn aescbc(keys: &[&str]) -> Self {
        let keys: String = keys
            .iter()
            .map(|name| {
                let bytes = BASE64_STANDARD.encode(Sha256::digest(name));
                format!("      - name: {name}\n        secret: {bytes}\n")
            })
            .collect();
        Self::secrets(&format!("  - aescbc:\n      keys:\n{keys}  - identity: {{}}\n"))
    }

    /// Secrets in plain text, ready to be changed into an encrypting configuration later.
    pub fn identity() -> Self {
        Self::secrets("  - identity: {}\n")
    }

    /// Any configuration, as YAML.
    pub fn from_yaml(yaml: &str) -> Self {
        Self(yaml.to_owned())
    }

    pub(crate) fn secrets(providers: &str) -> Self {
        Self(format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
             - resources: [secrets]\n  providers:\n{providers}"
        ))
    }

    /// The configuration as YAML.
    pub fn yaml(&self) -> &str {
        &self.0
    }

    /// The hash by which an API server names the configuration it has taken up.
    pub fn hash(&self) -> String {
        format!("sha256:{:x}", Sha256::digest(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::Encryption;

    #[test]
    fn the_first_key_comes_first_and_a_name_is_one_key() {
        let one = Encryption::aescbc(&["key1"]);
        let two = Encryption::aescbc(&["key2", "key1"]);
        let secret = |config: &Encryption, name: &str| {
            let rest = config.yaml().split_once(&format!("name: {name}\n")).map(|(_, rest)| rest.to_owned());
            rest.and_then(|rest| rest.lines().next().map(str::to_owned))
        };
        assert!(two.yaml().find("key2") < two.yaml().find("key1"));
        assert!(secret(&one, "key1").is_some());
        assert_eq!(secret(&one, "key1"), secret(&two, "key1"));
        assert_ne!(secret(&two, "key1"), secret(&two, "key2"));
        assert_ne!(one.hash(), two.hash());
    }
}
