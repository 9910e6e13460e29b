//! Reads Kubernetes' `EncryptionConfiguration` strictly, because a mistake in it could leave Secrets in plain text.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};
use serde::{Deserialize, Deserializer};

use super::cipher::{self, Cipher};

const VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";

/// Resources that are stored but not served.
const NOT_SERVED: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

/// What is wrong with a configuration. It never contains a value, which might be a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// The file is empty.
    #[error("the encryption configuration is empty")]
    Empty,
    /// It is not YAML, or has unknown fields.
    #[error("cannot parse the encryption configuration at line {line}, column {column}")]
    Syntax {
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: u64,
    },
    /// It has another kind or apiVersion.
    #[error("the encryption configuration is not a {KIND} of {VERSION}")]
    Kind,
    /// A field is invalid.
    #[error("the encryption configuration is invalid: {at}: {problem}")]
    Invalid {
        /// The field.
        at: String,
        /// What is wrong.
        problem: String,
    },
    /// It needs a KMS plugin.
    #[error(
        "the encryption configuration is invalid: {at}: kms is not supported; use aescbc, aesgcm, secretbox or identity"
    )]
    Kms {
        /// The field.
        at: String,
    },
}

/// A resource and its group; either may be `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Resource {
    pub(super) resource: String,
    pub(super) group: String,
}

/// One way to encrypt a resource.
#[derive(Clone)]
pub(super) struct Key {
    /// The prefix of all values that are encrypted with it; empty for plain text.
    pub(super) prefix: String,
    pub(super) cipher: Option<Arc<dyn Cipher>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    resources: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Provider {
    aescbc: Option<Keys>,
    aesgcm: Option<Keys>,
    secretbox: Option<Keys>,
    identity: Option<Identity>,
    kms: Option<Kms>,
}

/// Only what is in the prefix of the values.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kms {
    api_version: String,
    name: String,
}

impl Default for Kms {
    fn default() -> Self {
        Self { api_version: "v1".to_owned(), name: String::new() }
    }
}

/// What to do about resources that a KMS plugin encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plugins {
    Refused,
    /// Their values can be recognized and not decrypted.
    Recognized,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    keys: Vec<NamedKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedKey {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "secret")]
    secret: SecretString,
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}

/// The keys of each resource, in order.
pub(super) fn parse(
    file: &[u8],
    plugins: Plugins,
) -> Result<HashMap<Resource, Vec<Key>>, ConfigurationError> {
    if file.trim_ascii().is_empty() {
        return Err(ConfigurationError::Empty);
    }
    let file: File = serde_saphyr::from_slice(file).map_err(|error| syntax(&error))?;
    if file.api_version != VERSION || file.kind != KIND {
        return Err(ConfigurationError::Kind);
    }
    if file.resources.is_empty() {
        return Err(invalid("resources", "at least one is required"));
    }
    let mut rules: HashMap<Resource, Vec<Key>> = HashMap::new();
    for (index, rule) in file.resources.iter().enumerate() {
        let at = format!("resources[{index}]");
        let keys = keys(rule, &at, plugins)?;
        for resource in resources(rule, &at, &rules)? {
            rules.entry(resource).or_default().extend(keys.iter().cloned());
        }
    }
    Ok(rules)
}

/// The resources of a rule. They must overlap neither with an earlier rule nor with each other.
fn resources(
    rule: &Rule,
    at: &str,
    earlier: &HashMap<Resource, Vec<Key>>,
) -> Result<Vec<Resource>, ConfigurationError> {
    if rule.resources.is_empty() {
        return Err(invalid(&format!("{at}.resources"), "at least one is required"));
    }
    let mut resources: Vec<Resource> = Vec::new();
    for (index, name) in rule.resources.iter().enumerate() {
        let at = format!("{at}.resources[{index}] {name:?}");
        let resource = resource(name).map_err(|problem| invalid(&at, problem))?;
        if resources.contains(&resource) {
            return Err(invalid(&at, "duplicate"));
        }
        let overlaps = |other: &&Resource| other.covers(&resource) || resource.covers(other);
        if let Some(other) = resources.iter().find(overlaps) {
            return Err(invalid(&at, &format!("it overlaps with {:?}", other.name())));
        }
        if let Some(other) = earlier.keys().find(|earlier| earlier.covers(&resource)) {
            return Err(invalid(&at, &format!("the earlier {:?} covers it already", other.name())));
        }
        resources.push(resource);
    }
    Ok(resources)
}

fn resource(name: &str) -> Result<Resource, &'static str> {
    let (resource, group) = name.split_once('.').unwrap_or((name, ""));
    match (resource, group) {
        _ if name.is_empty() => Err("it must not be empty"),
        _ if name.chars().any(char::is_uppercase) => Err("it must be lowercase"),
        ("*", "") if !name.contains('.') => {
            Err("use \"*.\" for the whole core group or \"*.*\" for everything")
        }
        (_, "events.k8s.io") => Err("events are stored in the core group: name \"events\" instead"),
        (_, "extensions") => Err("this group is no longer served"),
        (resource, "*") if resource != "*" => Err("a wildcard group needs a wildcard resource"),
        _ if NOT_SERVED.contains(&name) => Err("it is not served by the API"),
        _ => Ok(Resource { resource: resource.to_owned(), group: group.to_owned() }),
    }
}

impl Resource {
    /// Whether this one includes the other one.
    fn covers(&self, other: &Self) -> bool {
        self.resource == "*" && (self.group == "*" || self.group == other.group)
    }

    fn name(&self) -> String {
        match (self.resource.as_str(), self.group.as_str()) {
            ("*", group) => format!("*.{group}"),
            (resource, "") => resource.to_owned(),
            (resource, group) => format!("{resource}.{group}"),
        }
    }
}

fn keys(rule: &Rule, at: &str, plugins: Plugins) -> Result<Vec<Key>, ConfigurationError> {
    if rule.providers.is_empty() {
        return Err(invalid(&format!("{at}.providers"), "at least one is required"));
    }
    let provider = |(index, provider)| provider_keys(provider, &format!("{at}.providers[{index}]"), plugins);
    let keys: Vec<Vec<Key>> = rule.providers.iter().enumerate().map(provider).collect::<Result<_, _>>()?;
    Ok(keys.into_iter().flatten().collect())
}

fn provider_keys(provider: &Provider, at: &str, plugins: Plugins) -> Result<Vec<Key>, ConfigurationError> {
    let Provider { aescbc, aesgcm, secretbox, identity, kms } = provider;
    if let Some(Kms { api_version, name }) = kms {
        if plugins == Plugins::Refused {
            return Err(ConfigurationError::Kms { at: at.to_owned() });
        }
        let prefix = format!("k8s:enc:kms:{api_version}:{name}:");
        return Ok(vec![Key { prefix, cipher: Some(cipher::plugin()) }]);
    }
    let aes: &[usize] = &[16, 24, 32];
    match (aescbc, aesgcm, secretbox, identity) {
        (Some(keys), None, None, None) => named(keys, "aescbc", at, aes, cipher::aescbc),
        (None, Some(keys), None, None) => named(keys, "aesgcm", at, aes, cipher::aesgcm),
        (None, None, Some(keys), None) => named(keys, "secretbox", at, &[32], cipher::secretbox),
        (None, None, None, Some(Identity {})) => Ok(vec![Key { prefix: String::new(), cipher: None }]),
        (None, None, None, None) => {
            Err(invalid(at, "it must be one of aescbc, aesgcm, secretbox and identity"))
        }
        _ => Err(invalid(at, "it has more than one provider; use a list element for each")),
    }
}

fn named(
    keys: &Keys,
    provider: &str,
    at: &str,
    sizes: &[usize],
    cipher: fn(&[u8]) -> Option<Arc<dyn Cipher>>,
) -> Result<Vec<Key>, ConfigurationError> {
    let at = format!("{at}.{provider}.keys");
    if keys.keys.is_empty() {
        return Err(invalid(&at, "at least one is required"));
    }
    let key = |(index, key): (usize, &NamedKey)| {
        let at = format!("{at}[{index}]");
        if key.name.is_empty() {
            return Err(invalid(&format!("{at}.name"), "it is required"));
        }
        let at = format!("{at}.secret");
        let bytes = bytes(&key.secret, &at, sizes)?;
        let cipher = cipher(&bytes).ok_or_else(|| invalid(&at, "it is not a valid key"))?;
        Ok(Key { prefix: format!("k8s:enc:{provider}:v1:{}:", key.name), cipher: Some(cipher) })
    };
    keys.keys.iter().enumerate().map(key).collect()
}

fn bytes(secret: &SecretString, at: &str, sizes: &[usize]) -> Result<Zeroizing<Vec<u8>>, ConfigurationError> {
    let secret = secret.expose_secret();
    if secret.is_empty() {
        return Err(invalid(at, "it is required"));
    }
    let bytes = BASE64_STANDARD.decode(secret).map_err(|_| invalid(at, "it is not valid base64"))?;
    let bytes = Zeroizing::new(bytes);
    if !sizes.contains(&bytes.len()) {
        let problem = format!("it has {} bytes, but must have {}", bytes.len(), any_of(sizes));
        return Err(invalid(at, &problem));
    }
    Ok(bytes)
}

fn any_of(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    sizes.join(" or ")
}

fn invalid(at: &str, problem: &str) -> ConfigurationError {
    ConfigurationError::Invalid { at: at.to_owned(), problem: problem.to_owned() }
}

fn syntax(error: &serde_saphyr::Error) -> ConfigurationError {
    let at = error.location();
    let (line, column) = at.map_or((1, 1), |at| (at.line(), at.column()));
    ConfigurationError::Syntax { line, column }
}
