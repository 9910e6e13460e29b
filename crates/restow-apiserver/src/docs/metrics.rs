//! The metrics of the server: its identity, and the encryption configuration it uses.

use std::fmt::Write as _;

use restow_store::encryption::Transformers;
use sha2::{Digest as _, Sha256};

const INFO: &str = "apiserver_encryption_config_controller_last_config_info";
const RELOADED: &str = "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds";

const IDENTITY: &str = "apiserver_identity_info";
const STARTED: &str = "process_start_time_seconds";

/// The metrics, sorted by name: server id, start time, encryption configuration, and when that was last reloaded, in
/// seconds. As in kube-apiserver, a start is no reload.
pub(crate) fn text(
    server_id: &str,
    started: i64,
    encryption: Option<&Transformers>,
    reloaded: Option<i64>,
) -> String {
    let mut text = String::new();
    let id = format!("sha256:{:x}", Sha256::digest(server_id));
    // Writing to a String cannot fail.
    if let Some(reloaded) = reloaded {
        let _ = write!(
            text,
            "# HELP {RELOADED} When the encryption configuration was last reloaded.\n# TYPE {RELOADED} gauge\n\
             {RELOADED}{{apiserver_id_hash=\"{id}\",status=\"success\"}} {reloaded}\n"
        );
    }
    if let Some(encryption) = encryption {
        let hash = encryption.hash();
        let _ = write!(
            text,
            "# HELP {INFO} The hash of the encryption configuration in use.\n# TYPE {INFO} gauge\n\
             {INFO}{{apiserver_id_hash=\"{id}\",hash=\"{hash}\"}} 1\n"
        );
    }
    let _ = write!(
        text,
        "# HELP {IDENTITY} Which API server this is.\n# TYPE {IDENTITY} gauge\n\
         {IDENTITY}{{apiserver_id_hash=\"{id}\"}} 1\n\
         # HELP {STARTED} When the server started.\n# TYPE {STARTED} gauge\n\
         {STARTED} {started}\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use restow_core::agreement::encryption::Config;

    use super::*;

    #[test]
    fn the_metrics_have_what_a_migrator_reads() {
        let read = |encryption: Option<&Transformers>, reloaded| {
            let mut config = Config::default();
            text("a", 5, encryption, reloaded).lines().for_each(|line| config.read(line));
            config
        };
        let keys = Transformers::default();
        let (plain, encrypted) = (read(None, None), read(Some(&keys), None));
        assert_eq!((plain.hash, plain.complete), (None, true));
        assert!(
            encrypted.hash.is_some() && encrypted.complete && encrypted.reloaded.is_empty(),
            "{encrypted:?}"
        );
        assert_eq!(read(Some(&keys), Some(7)).reloaded, "7");
        assert!(encrypted.id.starts_with("sha256:ca978112") && encrypted.started == "5", "{encrypted:?}");
        assert_eq!(plain.id, encrypted.id);
    }
}
