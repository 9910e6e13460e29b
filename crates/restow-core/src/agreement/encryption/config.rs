//! What the metrics of one API server show about its encryption.

use std::collections::BTreeMap;

use super::kms::KmsKeys;
use crate::agreement::metric::label;

/// The hash of a server that reports none: it has no configuration, or one that it does not reload automatically.
pub const UNREPORTED: &str = "unreported";

/// The metric that has the hash of the configuration an API server uses.
const INFO: &str = "apiserver_encryption_config_controller_last_config_info";
/// The metric that has the time of the last reload.
const RELOADED: &str = "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds";
/// The metric that has the start time of the process.
const STARTED: &str = "process_start_time_seconds";
/// The label that identifies the server.
const ID: &str = "apiserver_id_hash";

/// The encryption metrics of one API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The hash of its configuration, if it reports one.
    pub hash: Option<String>,
    /// When it last loaded a configuration, as the metric shows it.
    pub reloaded: String,
    /// Which server it is, as a hash of its identity.
    pub id: String,
    /// When its process started, as the metric shows it.
    pub started: String,
    /// The address that it advertises to clients; it is not in the metrics.
    pub address: String,
    /// The keys of its KMS plugins.
    pub kms: KmsKeys,
    /// Whether the metrics are those of an API server and were read past those about encryption; they are sorted by name.
    /// Otherwise, a metric that was not found may exist.
    pub complete: bool,
}

impl Config {
    /// Reads one line of metrics.
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

    /// The hash of its configuration and the current key of each KMS plugin, as `HASH+PLUGIN:KEY`; none if it reports
    /// neither.
    pub fn identity(&self) -> Option<String> {
        let keys = self.kms.current();
        if self.hash.is_none() && keys.is_empty() {
            return None;
        }
        let hash = self.hash.clone().unwrap_or_else(|| UNREPORTED.to_owned());
        Some([vec![hash], keys].concat().join("+"))
    }

    /// When it last loaded a configuration without a restart, and when its plugins last reported each former key.
    pub(super) fn changes(&self, server: &str) -> BTreeMap<String, String> {
        let id = if self.id.is_empty() { server } else { &self.id };
        let reload = (!self.reloaded.is_empty()).then(|| (id.to_owned(), self.reloaded.clone()));
        let former = self.kms.former().map(|(key, time)| (format!("{id} {key}"), time));
        reload.into_iter().chain(former).collect()
    }

    /// Why its current key is not known, although it reports something about its encryption.
    pub(super) fn untold(&self) -> Option<String> {
        let unreported = || {
            let only_key = self.hash.is_none() && !self.kms.is_empty();
            only_key.then(|| "it reports a KMS key and no encryption configuration".to_owned())
        };
        self.kms.untold().or_else(unreported)
    }

    /// Identifies the process; empty if the metrics do not.
    pub fn process(&self) -> String {
        if self.id.is_empty() && self.started.is_empty() {
            return String::new();
        }
        format!("{}@{}", self.id, self.started)
    }

    /// Identifies the server among others, by everything that is known.
    pub fn name(&self) -> String {
        format!("{} {}", self.address, self.process()).trim().to_owned()
    }
}
