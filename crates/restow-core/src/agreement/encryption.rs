//! Whether all API servers write under one encryption configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::config::{Config, UNREPORTED};
pub use self::kms::KmsKeys;
use crate::agreement::consensus::Consensus;
use crate::resource::name::GroupResource;

mod config;
mod kms;

/// A message about live API servers whose metrics were not read; none if all were.
///
/// Servers whose metrics do not identify them count as one.
pub fn missed(answers: &[(String, Result<Config, MetricsError>)], live: usize) -> Option<String> {
    let configs = answers.iter().filter_map(|(_, config)| config.as_ref().ok());
    let met = configs.map(Config::name).collect::<BTreeSet<_>>().len();
    let unread = answers.iter().filter(|(_, config)| config.is_err()).count();
    let missing = live.saturating_sub(met + unread);
    (missing > 0).then(|| format!("the metrics of {missing} of {live} API servers were not read"))
}

/// The encryption configurations of all API servers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// What the servers report together; none if some refuse to show their metrics and the others report nothing.
    pub consensus: Option<Consensus>,
    /// Changes whenever a server loads a configuration.
    pub fingerprint: String,
    /// When each server last loaded a configuration without a restart, by the hash of its identity. A server that has not
    /// done so since it started is missing.
    pub reloads: BTreeMap<String, String>,
    /// Servers that could not be reached, and why; a retry may help.
    pub unreachable: Vec<(String, String)>,
    /// Servers that refused to show their metrics, and why; a retry does not help.
    pub refused: Vec<(String, String)>,
    /// Servers whose metrics were read, and what each reports: the hash of its configuration and its KMS keys.
    pub heard: Vec<(String, Option<String>)>,
    /// Servers whose metrics were read and do not show the key they write under, and why.
    pub untold: Vec<(String, String)>,
    /// When the KMS plugins of each server last reported their keys.
    pub named: BTreeMap<String, String>,
}

/// Why the metrics of an API server could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsError {
    /// It did not answer.
    Silent(String),
    /// It does not allow its metrics to be read, or its address is not known.
    Refused(String),
}

/// Combines the answers of all servers.
pub fn agree(answers: &[(String, Result<Config, MetricsError>)]) -> Encryption {
    let (mut heard, mut untold) = (Vec::new(), Vec::new());
    let (mut unreachable, mut refused) = (Vec::new(), Vec::new());
    for (server, config) in answers {
        match config {
            Ok(config) => {
                heard.push((server.clone(), config.identity()));
                untold.extend(config.untold().map(|why| (server.clone(), why)));
            }
            Err(MetricsError::Silent(why)) => unreachable.push((server.clone(), why.clone())),
            Err(MetricsError::Refused(why)) => refused.push((server.clone(), why.clone())),
        }
    }
    let hash = |(_, hash): &(String, Option<String>)| hash.clone().unwrap_or_else(|| UNREPORTED.to_owned());
    let hashes: Vec<String> = heard.iter().map(hash).collect::<BTreeSet<_>>().into_iter().collect();
    let complete = unreachable.is_empty() && refused.is_empty();
    let consensus = match hashes.as_slice() {
        [one] if complete => Some(Consensus::Agreed(one.clone())),
        [_, ..] if complete => Some(Consensus::Split(hashes)),
        // Nothing shows that this cluster encrypts, and a retry would not change that.
        [one] if one == UNREPORTED && !refused.is_empty() => None,
        _ => Some(Consensus::Silent(hashes)),
    };
    let read = |(server, config): &(String, Result<Config, MetricsError>)| {
        config.as_ref().ok().map(|config| (server.clone(), config.clone()))
    };
    let read: Vec<(String, Config)> = answers.iter().filter_map(read).collect();
    let fingerprint = |(server, config): &(String, Config)| {
        let keys: Vec<String> = config.kms.former().map(|(key, time)| format!(" {key}@{time}")).collect();
        let identity = config.identity().unwrap_or_default();
        format!("{server}={identity}@{}{}", config.reloaded, keys.concat())
    };
    let fingerprint = read.iter().map(fingerprint).collect::<Vec<_>>().join(" ");
    let reloads = read.iter().flat_map(|(server, config)| config.changes(server)).collect();
    let named = |(server, config): &(String, Config)| Some((server.clone(), config.kms.named_at()?));
    let named = read.iter().filter_map(named).collect();
    Encryption { consensus, fingerprint, reloads, unreachable, refused, heard, untold, named }
}

impl Encryption {
    /// The hash that all servers report whose metrics were read; the error holds the different ones.
    pub fn common(&self) -> Result<Option<&str>, Vec<String>> {
        let hashes: BTreeSet<Option<&str>> = self.heard.iter().map(|(_, hash)| hash.as_deref()).collect();
        match hashes.len() {
            0 | 1 => Ok(hashes.into_iter().next().flatten()),
            _ => Err(hashes.into_iter().map(|hash| hash.unwrap_or(UNREPORTED).to_owned()).collect()),
        }
    }

    /// What this observation shows about the key.
    pub fn check(&self) -> Check {
        let each = |(server, reason): &(String, String)| Unchecked {
            server: server.clone(),
            reason: reason.clone(),
        };
        let unchecked: Vec<Unchecked> = self.refused.iter().chain(&self.unreachable).map(each).collect();
        let untold: Vec<Unchecked> = self.untold.iter().map(each).collect();
        let config_hash = self.common().ok().flatten().map(str::to_owned);
        Check {
            checked: unchecked.is_empty() && untold.is_empty() && config_hash.is_some(),
            config_hash,
            servers: self.heard.iter().map(|(server, _)| server.clone()).collect(),
            unchecked,
            untold,
            named: self.named.clone(),
        }
    }
}

/// What a run has observed of the API servers' encryption configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Check {
    /// Whether every live API server reported the same configuration and KMS keys.
    pub checked: bool,
    /// The hash of the configuration that the servers report, and the key of each KMS plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_hash: Option<String>,
    /// The API servers whose metrics were read.
    pub servers: Vec<String>,
    /// The API servers whose metrics were not read.
    pub unchecked: Vec<Unchecked>,
    /// The API servers whose metrics do not show the key they write under.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<Unchecked>,
    /// When the KMS plugins of each server had last reported their keys at the first observation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub named: BTreeMap<String, String>,
}

/// An API server whose encryption configuration was not checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unchecked {
    /// The name or address of the server.
    pub server: String,
    /// Why its configuration was not checked.
    pub reason: String,
}

impl Check {
    /// A check that read nothing, for this reason.
    pub fn none(server: &str, reason: &str) -> Self {
        let unchecked = vec![Unchecked { server: server.to_owned(), reason: reason.to_owned() }];
        Self { unchecked, ..Self::default() }
    }

    /// Combines this check with a later one; only what both show remains.
    pub fn and(self, later: Self) -> Self {
        let mut unchecked = self.unchecked;
        unchecked.retain(|one| !later.unchecked.iter().any(|other| other.server == one.server));
        unchecked.extend(later.unchecked);
        let mut untold = if later.untold.is_empty() { self.untold } else { later.untold };
        let outdated = outdated(&self.named, &later.named);
        untold.extend(outdated.iter().map(|server| Unchecked {
            server: (*server).to_owned(),
            reason: "it has not asked its KMS plugin for the current key since the pass began".to_owned(),
        }));
        let checked = self.checked && later.checked && outdated.is_empty();
        // A configuration that was reported once may cover the resource, even if no server reports it later.
        let config_hash = later.config_hash.or(self.config_hash);
        let named = if self.named.is_empty() { later.named } else { self.named };
        Self { checked, config_hash, unchecked, untold, named, servers: later.servers }
    }

    /// Whether every API server has queried its KMS plugins for their keys since the first observation.
    pub fn is_followed_by(&self, later: &Encryption) -> bool {
        outdated(&self.named, &later.named).is_empty()
    }

    /// Why the key is not proven; none if it is.
    pub fn open(&self) -> Option<String> {
        if self.checked {
            return None;
        }
        let each = |one: &Unchecked| format!("{}: {}", one.server, one.reason);
        if !self.unchecked.is_empty() || !self.untold.is_empty() {
            return Some(self.unchecked.iter().chain(&self.untold).map(each).collect::<Vec<_>>().join("; "));
        }
        Some(if self.servers.is_empty() {
            "the API servers' metrics were not read".to_owned()
        } else {
            "no API server reports an encryption configuration in its metrics".to_owned()
        })
    }
}

/// The API servers that have not queried their KMS plugins since an earlier observation, and so may have missed a key
/// rotation.
fn outdated<'a>(before: &BTreeMap<String, String>, now: &'a BTreeMap<String, String>) -> Vec<&'a str> {
    let old = |(server, time): &(&String, &String)| {
        before.get(*server).is_some_and(|before| kms::seconds(time) <= kms::seconds(before))
    };
    now.iter().filter(old).map(|(server, _)| server.as_str()).collect()
}

/// What a run has to prove about the encryption key of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyRequirement {
    /// Nothing: the user says that the resource is not encrypted, or its server's key cannot be determined.
    Nothing,
    /// If one API server reports a configuration, which may cover the resource, every one must report the same. If none
    /// does, nothing is required. A key that no metric shows is reported as unchecked and does not prevent verification,
    /// because most resources are not encrypted.
    #[default]
    Reported,
    /// As [`Reported`](Self::Reported), and the run is not verified if metrics cannot be read or do not show the key: the
    /// resource is usually encrypted.
    Usual,
    /// Every API server must report one configuration: the user says that the resource is encrypted.
    Declared,
}

impl KeyRequirement {
    /// The requirement for a resource, given what the user declared as encrypted, if anything.
    pub fn of(resource: &GroupResource, declared: Option<&[Pattern]>) -> Self {
        match declared {
            Some(patterns) if patterns.iter().any(|pattern| pattern.covers(resource)) => Self::Declared,
            Some(_) => Self::Nothing,
            // Every encryption configuration covers Secrets.
            None if *resource == GroupResource::new("", "secrets") => Self::Usual,
            None => Self::Reported,
        }
    }

    /// The requirement in a controller. There, a declaration does not mean that other resources are not encrypted.
    pub fn of_controller(resource: &GroupResource, declared: Option<&[Pattern]>) -> Self {
        match Self::of(resource, declared) {
            Self::Nothing => Self::Reported,
            requirement => requirement,
        }
    }

    /// Whether a controller watches the key of a resource with this requirement.
    pub fn is_watched(self) -> bool {
        matches!(self, Self::Usual | Self::Declared)
    }

    /// Why a run with this check is not verified; none if the requirement is met.
    pub fn unmet(self, check: &Check) -> Option<String> {
        let open = check.open()?;
        let missing = match self {
            Self::Nothing => false,
            Self::Reported => check.config_hash.is_some() && !check.unchecked.is_empty(),
            Self::Usual => {
                !check.unchecked.is_empty() || !check.untold.is_empty() || check.servers.is_empty()
            }
            Self::Declared => true,
        };
        missing.then_some(open)
    }
}

/// Resources as an EncryptionConfiguration names them: `secrets`, `widgets.example.com`, `*.apps`, `*.`, `*.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Creates a pattern from the text in a flag.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern covers a resource.
    pub fn covers(&self, resource: &GroupResource) -> bool {
        match self.0.strip_prefix("*.") {
            Some("*") => true,
            Some(group) => resource.group == group,
            None => resource.to_string() == self.0,
        }
    }
}

#[cfg(test)]
mod tests;
