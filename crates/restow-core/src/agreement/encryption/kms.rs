//! The keys of KMS plugins, from the metrics of one API server.
//!
//! A KMS v2 plugin may rotate its key while the encryption configuration stays the same. The API server asks the
//! plugin's Status for the id of the current key once a minute and publishes a hash of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::agreement::metric::label;

/// The time at which a plugin's Status last returned a key.
const NAMED: &str = "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds";
/// Counts the calls to KMS v2 plugins; the last of the metrics about plugins by name.
const CALLS: &str = "apiserver_envelope_encryption_kms_operations_latency_seconds";
/// Has series only where a KMS v1 plugin is used.
const V1: &str = "apiserver_envelope_encryption_dek_cache_inter_arrival_time_seconds";
/// A plugin whose Status is this many seconds older than another plugin's is no longer configured: Status is asked for
/// once a minute, and the API server writes under a key for three minutes after the last answer.
const OUTDATED: f64 = 300.0;
/// How many hexadecimal digits of a key id's hash are shown.
const SHOWN: usize = 16;

/// The keys that the KMS plugins of one API server have reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KmsKeys {
    /// When each key was last reported, by plugin and hash of the key id, as the metric shows it.
    named: BTreeMap<(String, String), String>,
    /// The KMS v2 plugins that the server has called.
    called: BTreeSet<String>,
    /// Whether a KMS v1 plugin is used.
    v1: bool,
}

impl KmsKeys {
    /// Reads a metric, given its name, labels and value.
    pub(super) fn read(&mut self, name: &str, labels: &str, value: &str) {
        let provider = || label(labels, "provider_name").unwrap_or_default().to_owned();
        if name == NAMED {
            let key = label(labels, "key_id_hash").unwrap_or_default().to_owned();
            self.named.insert((provider(), key), value.to_owned());
        } else if name.starts_with(CALLS) {
            self.called.insert(provider());
        }
        self.v1 |= name.starts_with(V1);
    }

    /// Whether a metric comes after all that are read here; metrics are sorted by name.
    pub(super) fn are_before(name: &str) -> bool {
        name > CALLS && !name.starts_with(CALLS)
    }

    /// Whether no plugin has reported a key.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// The current key of each configured plugin, as `PLUGIN:HASH`.
    pub(super) fn current(&self) -> Vec<String> {
        let show = |(provider, key): (&str, &str)| {
            let digits = key.trim_start_matches("sha256:");
            format!("{provider}:{}", digits.get(..SHOWN).unwrap_or(digits))
        };
        self.newest().into_iter().map(show).collect()
    }

    /// When the configured plugins last reported each key that is no longer current, by plugin and key.
    ///
    /// A key that is new here, or has a new time, was current in between.
    pub(super) fn former(&self) -> impl Iterator<Item = (String, String)> {
        let newest = self.newest();
        let is_former = move |(provider, key): &(String, String)| {
            newest.get(provider.as_str()).is_some_and(|current| *current != key)
        };
        let former = self.named.iter().filter(move |(named, _)| is_former(named));
        former.map(|((provider, key), time)| (format!("{provider}:{key}"), time.clone()))
    }

    /// The time by which all configured plugins had reported their keys, as the metric shows it; none without a plugin.
    pub(super) fn named_at(&self) -> Option<String> {
        let newest = self.newest();
        let current = self.named.iter().filter(|((provider, key), _)| {
            newest.get(provider.as_str()).is_some_and(|current| *current == key)
        });
        current.map(|(_, time)| time).min_by(|one, other| seconds(one).total_cmp(&seconds(other))).cloned()
    }

    /// Why the current key of a plugin is not known; none if it is known or there is no plugin.
    pub(super) fn untold(&self) -> Option<String> {
        if self.v1 {
            return Some("a KMS v1 plugin does not report which key it uses".to_owned());
        }
        let tells = |provider: &String| self.named.keys().any(|(named, _)| named == provider);
        let silent = self.called.iter().find(|provider| !tells(provider))?;
        Some(format!("the KMS plugin {silent} does not report which key it uses"))
    }

    /// The key last reported by each plugin that is still configured.
    fn newest(&self) -> BTreeMap<&str, &str> {
        let last = self.named.values().map(|time| seconds(time)).fold(0.0, f64::max);
        let mut newest: BTreeMap<&str, (&str, f64)> = BTreeMap::new();
        for ((provider, key), time) in &self.named {
            let time = seconds(time);
            let known = newest.get(provider.as_str()).is_some_and(|(_, known)| *known >= time);
            if !known && last - time <= OUTDATED {
                newest.insert(provider, (key, time));
            }
        }
        newest.into_iter().map(|(provider, (key, _))| (provider, key)).collect()
    }
}

/// The time of a metric in seconds.
pub(super) fn seconds(time: &str) -> f64 {
    time.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    /// The metrics of a server whose plugins have named these keys, as `plugin:key@time`.
    fn config(hash: Option<&str>, named: &str, more: &str) -> Config {
        let mut text = String::new();
        if let Some(hash) = hash {
            text += &format!(
                "apiserver_encryption_config_controller_last_config_info{{apiserver_id_hash=\"s\",hash=\"{hash}\"}} 1\n"
            );
        }
        for one in named.split_whitespace() {
            let (plugin, rest) = one.split_once(':').unwrap();
            let (key, time) = rest.split_once('@').unwrap();
            text += &format!(
                "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{{apiserver_id_hash=\"s\",\
                 key_id_hash=\"sha256:{key}\",provider_name=\"{plugin}\"}} {time}\n\
                 apiserver_envelope_encryption_kms_operations_latency_seconds_count{{grpc_status_code=\"OK\",\
                 method_name=\"/v2.KeyManagementService/Status\",provider_name=\"{plugin}\"}} 1\n"
            );
        }
        text += more;
        text += "apiserver_request_total{code=\"200\"} 7\n";
        let mut config = Config::default();
        text.lines().for_each(|line| config.read(line));
        assert!(config.complete, "{text}");
        config
    }

    #[test]
    fn the_key_reported_last_is_the_current_one() {
        for (hash, named, identity, former) in [
            (Some("a"), "", Some("a"), ""),
            (None, "", None, ""),
            (Some("a"), "p:1@1.7e+09", Some("a+p:1"), ""),
            (Some("a"), "p:1@1.7e+09 p:2@1.70000006e+09", Some("a+p:2"), "p:sha256:1"),
            // Named again: it was rotated back.
            (Some("a"), "p:1@1.70000012e+09 p:2@1.70000006e+09", Some("a+p:1"), "p:sha256:2"),
            (Some("a"), "p:1@1000 q:2@1000", Some("a+p:1+q:2"), ""),
            // The plugin q was taken out of the configuration.
            (Some("a"), "p:1@2000 q:2@1000", Some("a+p:1"), ""),
            (None, "p:1@1000", Some("unreported+p:1"), ""),
            (Some("a"), "p:0123456789abcdef0123@1000", Some("a+p:0123456789abcdef"), ""),
        ] {
            let config = config(hash, named, "");
            assert_eq!(config.identity().as_deref(), identity, "{named}");
            let keys: Vec<String> = config.kms.former().map(|(key, _)| key).collect();
            assert_eq!(keys.join(" "), former, "{named}");
        }
        // The plugin that was asked longest ago counts, not a key that it names no more.
        for (named, at) in [("", None), ("p:1@1700 p:2@1760 q:3@1750", Some("1750"))] {
            assert_eq!(config(Some("a"), named, "").kms.named_at().as_deref(), at, "{named}");
        }
    }

    #[test]
    fn a_kms_plugin_without_a_key_is_reported() {
        let called =
            "apiserver_envelope_encryption_kms_operations_latency_seconds_count{provider_name=\"q\"} 1\n";
        let v1 = "apiserver_envelope_encryption_dek_cache_inter_arrival_time_seconds_count{transformation_type=\"to_storage\"} 1\n";
        for (hash, named, more, untold) in [
            (Some("a"), "", "", None),
            (Some("a"), "p:1@1", "", None),
            (Some("a"), "p:1@1", called, Some("the KMS plugin q does not report which key it uses")),
            (Some("a"), "", v1, Some("a KMS v1 plugin does not report which key it uses")),
            (None, "p:1@1", "", Some("it reports a KMS key and no encryption configuration")),
            (None, "", "", None),
        ] {
            assert_eq!(config(hash, named, more).untold().as_deref(), untold, "{named} {more}");
        }
    }
}
