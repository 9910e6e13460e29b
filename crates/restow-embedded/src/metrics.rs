//! What the server tells of itself to those who measure: which encryption configuration it uses.

use std::fmt::Write as _;

use restow_store::encryption::Transformers;
use sha2::{Digest as _, Sha256};

const INFO: &str = "apiserver_encryption_config_controller_last_config_info";
const RELOADED: &str = "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds";

/// The metrics of a server, by its id, and how it seals objects since when, in seconds.
pub fn text(server_id: &str, encryption: Option<&Transformers>, since: i64) -> String {
    let mut text = String::new();
    let Some(encryption) = encryption else { return text };
    let id = format!("sha256:{:x}", Sha256::digest(server_id));
    let hash = encryption.hash();
    // Writing to a text cannot fail.
    let _ = write!(
        text,
        "# HELP {INFO} The hash of the encryption configuration in use.\n# TYPE {INFO} gauge\n\
         {INFO}{{apiserver_id_hash=\"{id}\",hash=\"{hash}\"}} 1\n\
         # HELP {RELOADED} When the encryption configuration was last taken up.\n# TYPE {RELOADED} gauge\n\
         {RELOADED}{{apiserver_id_hash=\"{id}\",status=\"success\"}} {since}\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use restow_core::encryption::Config;

    use super::*;

    #[test]
    fn those_who_migrate_read_it() {
        assert_eq!(text("a", None, 0), "");
        let mut config = Config::default();
        text("a", Some(&Transformers::default()), 7).lines().for_each(|line| config.read(line));
        assert!(config.id.starts_with("sha256:ca978112"), "{config:?}");
    }
}
