//! What one API server's metrics say of how it encrypts.

use std::collections::BTreeMap;

use super::kms::KmsKeys;
use super::metric::label;

/// Stands for the hash of a server that reports none: it has no configuration, or one it does not reload by itself.
pub const UNREPORTED: &str = "unreported";

/// The metric that names the configuration an API server uses.
const INFO: &str = "apiserver_encryption_config_controller_last_config_info";
/// The metric that tells when it last took one up.
const RELOADED: &str = "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds";
/// The metric that tells when the process started.
const STARTED: &str = "process_start_time_seconds";
/// The label that tells which server it is.
const ID: &str = "apiserver_id_hash";

/// What one API server's metrics say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The hash of its configuration; none when it has none.
    pub hash: Option<String>,
    /// When it took one up, in the server's own words.
    pub reloaded: String,
    /// Which server it is, as a hash of its identity.
    pub id: String,
    /// When its process started, in the server's own words.
    pub started: String,
    /// The address it tells its clients, which is not in its metrics.
    pub address: String,
    /// The keys of its KMS plugins.
    pub kms: KmsKeys,
    /// Whether an API server's metrics were read, up to behind those about encryption: they are sorted by name. Of
    /// anything else nothing can be missing.
    pub complete: bool,
}

impl Config {
    /// Takes one line of metrics in.
    pub fn read(&mut self, line: &str) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
        let value = || rest.rsplit_once(' ').map_or("", |(_, value)| value).trim().to_owned();
        if name.starts_with("apiserver_")
            && let Some(id) = label(rest, ID)
        {
            id.clone_into(&mut self.id);
        }
        match name {
            INFO => self.hash = label(rest, "hash").map(str::to_owned),
            RELOADED if label(rest, "status") == Some("success") => self.reloaded = value(),
            STARTED => self.started = value(),
            _ => {}
        }
        self.kms.read(name, rest, &value());
        self.complete |= name.starts_with("apiserver_") && KmsKeys::are_before(name);
    }

    /// The hash of its configuration, and the key that each KMS plugin names: `HASH+PLUGIN:KEY`. None when it reports
    /// neither.
    pub fn identity(&self) -> Option<String> {
        let keys = self.kms.current();
        if self.hash.is_none() && keys.is_empty() {
            return None;
        }
        let hash = self.hash.clone().unwrap_or_else(|| UNREPORTED.to_owned());
        Some([vec![hash], keys].concat().join("+"))
    }

    /// When it last took up a configuration without a restart, and when its plugins last named each former key.
    pub(super) fn changes(&self, server: &str) -> BTreeMap<String, String> {
        let id = if self.id.is_empty() { server } else { &self.id };
        let reload = (!self.reloaded.is_empty()).then(|| (id.to_owned(), self.reloaded.clone()));
        let former = self.kms.former().map(|(key, time)| (format!("{id} {key}"), time));
        reload.into_iter().chain(former).collect()
    }

    /// Why nothing tells under which key it writes, although it says something of its encryption.
    pub(super) fn untold(&self) -> Option<String> {
        let unreported = || {
            let only_key = self.hash.is_none() && !self.kms.is_empty();
            only_key.then(|| "it reports a KMS key and no encryption configuration".to_owned())
        };
        self.kms.untold().or_else(unreported)
    }

    /// Which process it is; empty when it does not tell.
    pub fn process(&self) -> String {
        if self.id.is_empty() && self.started.is_empty() {
            return String::new();
        }
        format!("{}@{}", self.id, self.started)
    }

    /// All that tells it from other servers.
    pub fn name(&self) -> String {
        format!("{} {}", self.address, self.process()).trim().to_owned()
    }
}
