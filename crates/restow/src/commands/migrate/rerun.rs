//! The command that continues with a resource: its name, and the flags of this run.

use std::fmt::Write as _;

use super::flags::{Migrate, Verify};
use crate::args::{Connection, PaceName, typed_duration};

/// The flags that another run of the same kind needs, as they are typed: the cluster, the state directory, what must be
/// proven, and the pace.
pub(crate) fn flags(connection: &Connection, migrate: &Migrate) -> String {
    let mut flags = Flags::default();
    flags.value("--kubeconfig", connection.kubeconfig.as_ref().map(|path| path.display()));
    flags.value("--context", connection.context.as_ref());
    flags.value("--cluster", connection.cluster.as_ref());
    flags.value("--user", connection.user.as_ref());
    flags.value("--server", connection.server.as_ref());
    flags.value("--as", connection.as_user.as_ref());
    flags.values("--as-group", &connection.as_group);
    flags.value(
        "--certificate-authority",
        connection.certificate_authority.as_ref().map(|path| path.display()),
    );
    flags.value("--request-timeout", connection.request_timeout.map(typed_duration));
    flags.switch("--insecure-skip-tls-verify", connection.insecure_skip_tls_verify);
    flags.values("--api-server", &connection.api_server);
    flags.switch("--assume-single-server", connection.assume_single_server);
    flags.value("--sample-servers", connection.sample_servers.map(typed_duration));
    flags.value("--state-dir", migrate.state_dir.as_ref().map(|path| path.display()));
    flags.value("--encrypted", (!migrate.encrypted.is_empty()).then(|| migrate.encrypted.join(",")));
    flags.switch("--include-events", migrate.include_events);
    flags.switch("--prune-stored-versions", migrate.prune_stored_versions);
    flags.switch("--repair-managed-fields", migrate.repair_managed_fields);
    flags.value("--verify", (migrate.verify == Verify::None).then_some("none"));
    let pace = &migrate.pace;
    flags.value(
        "--pace",
        match pace.pace {
            PaceName::Steady => None,
            PaceName::Gentle => Some("gentle"),
            PaceName::Fast => Some("fast"),
        },
    );
    flags.value("--max-in-flight", pace.max_in_flight);
    flags.value("--qps", pace.qps);
    flags.value("--bandwidth", pace.bandwidth);
    flags.0
}

#[derive(Default)]
struct Flags(String);

impl Flags {
    fn switch(&mut self, flag: &str, given: bool) {
        if given {
            let _ = write!(self.0, " {flag}");
        }
    }

    fn value(&mut self, flag: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            let _ = write!(self.0, " {flag} {}", quoted(&value.to_string()));
        }
    }

    fn values(&mut self, flag: &str, values: &[impl ToString]) {
        values.iter().for_each(|value| self.value(flag, Some(value.to_string())));
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// The part of the command line that is read here.
    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        connection: Connection,
        #[command(flatten)]
        migrate: Migrate,
    }

    #[test]
    fn a_suggested_command_repeats_the_flags_of_this_run() {
        for (given, expected) in [
            ("widgets --timeout 5m -o json --resume", ""),
            (
                "a b --context it's --state-dir /tmp/x --encrypted *.* --pace fast",
                r" --context 'it'\''s' --state-dir /tmp/x --encrypted '*.*' --pace fast",
            ),
            (
                "--all --api-server https://a:1 --api-server https://b:1 --prune-stored-versions",
                " --api-server https://a:1/ --api-server https://b:1/ --prune-stored-versions",
            ),
            ("a --verify none --qps 2.5", " --verify none --qps 2.5"),
            ("a --sample-servers 1s500ms", " --sample-servers 1.5s"),
        ] {
            let typed = Typed::try_parse_from(std::iter::once("restow").chain(given.split(' '))).unwrap();
            assert_eq!(flags(&typed.connection, &typed.migrate), expected, "{given}");
        }
    }
}
