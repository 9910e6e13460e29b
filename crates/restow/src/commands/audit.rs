//! `restow audit`: what is really stored, read from the bytes.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use restow_audit::{Finding, Gap, Report};

use crate::args::Connection;
use crate::commands::audit::expected::{Comparison, expected};
use crate::commands::audit::read::read;
use crate::commands::audit::source::{AuditSource, source};
use crate::error::CliError;
use crate::output::{self, say};
use crate::render::audit::{csv, summary, table};
use crate::render::table::width;
use crate::render::text::{counted, json};

mod expected;
mod read;
mod source;

/// Show what is really stored: versions, encryption keys and stale objects, read from etcd, a snapshot or a file
///
/// Reads the stored bytes and asks no API server for objects. Values are decoded just far enough to see their version
/// and their encryption key; they are never printed, logged, written or kept.
///
/// An object is stale if it is stored in another version than its API server stores now, or under another key than the
/// encryption configuration has first. The version comes from the cluster of the kubeconfig, if it answers, or from
/// --expect. The key comes from --encryption-config.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  restow audit --etcd https://10.0.0.11:2379 --etcd-cafile ca.crt --etcd-certfile c.crt --etcd-keyfile c.key
  restow audit --snapshot backup.db                               compared with the cluster of the kubeconfig
  restow audit --snapshot backup.db --offline --expect example.com/v2 --expect apps/v1
  restow audit --snapshot /var/lib/etcd                           the data directory of a stopped etcd
  restow audit --data-dir ./data                                  the embedded API server, when it is stopped
  restow audit --snapshot backup.db --encryption-config enc.yaml  also look at what is encrypted
  restow audit --snapshot backup.db -o json > report.json

Exit codes:
  0  nothing is stale
  1  failed, or not everything could be compared
  3  nothing is stale, and some values cannot be decoded
  4  something is stale")]
pub(crate) struct Audit {
    #[command(flatten)]
    source: AuditSource,
    /// The EncryptionConfiguration of the API servers: shows the versions of encrypted objects, and which keys are old
    #[arg(long, value_name = "FILE")]
    encryption_config: Option<PathBuf>,
    /// The version that all resources of a group should be stored in, such as example.com/v2 or v1 (may be repeated)
    #[arg(long, value_name = "GROUP/VERSION", value_delimiter = ',')]
    expect: Vec<String>,
    /// Do not ask the cluster which versions it stores and serves
    #[arg(long)]
    offline: bool,
    /// The prefix of all keys, as in kube-apiserver
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    etcd_prefix: String,
    /// How many names of stale objects to show for each resource
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_names: usize,
    /// Write the names of all stale objects to a file: a line for each one, with its resource
    #[arg(long, value_name = "FILE")]
    stale_names: Option<PathBuf>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = AuditOutput::Table)]
    output: AuditOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AuditOutput {
    Table,
    Json,
    Csv,
}

/// The exit code if something is stale.
const STALE: u8 = 4;
/// The exit code if something cannot be decoded.
const UNDECODABLE: u8 = 3;
/// The exit code if not everything could be compared.
const INCOMPLETE: u8 = 1;

pub(crate) async fn run(connection: &Connection, flags: &Audit) -> Result<u8, CliError> {
    let source = source(&flags.source)?;
    let config = flags.encryption_config.as_deref();
    let (expected, comparison) = expected(connection, &flags.expect, config, flags.offline).await?;
    let stale_names = flags.stale_names.as_deref();
    let report = read(source, &flags.etcd_prefix, expected, flags.max_names, stale_names).await?;
    comparison.check(&report)?;
    if report.objects() == 0 && report.outside > 0 {
        return Err(CliError::failed(format!("no key starts with {}", flags.etcd_prefix))
            .hint("give the --etcd-prefix of the API servers"));
    }
    output::print(&match flags.output {
        AuditOutput::Json => json(&report),
        AuditOutput::Csv => csv(&report),
        AuditOutput::Table => table(&report, width()),
    });
    if flags.output == AuditOutput::Table {
        say!("{}", summary(&report));
    }
    notes(&report).iter().for_each(|note| say!("warning: {note}"));
    Ok(exit_code(&report, &comparison))
}

fn exit_code(report: &Report, comparison: &Comparison) -> u8 {
    match report.finding() {
        Finding::Stale => STALE,
        Finding::Undecodable => UNDECODABLE,
        Finding::Nothing if comparison.is_complete() => 0,
        Finding::Incomplete | Finding::Nothing => INCOMPLETE,
    }
}

/// What a reader of the report has to know.
fn notes(report: &Report) -> Vec<String> {
    let gap = |gap: &Gap| match gap {
        Gap::Versions { resource, objects } => format!(
            "{resource}: the versions of {} are not known, because they are encrypted: give --encryption-config",
            counted(*objects, "object")
        ),
        Gap::Keys { resource } => format!(
            "{resource}: its objects are under several keys, and nothing shows which one is used now: give \
            --encryption-config"
        ),
    };
    let mut notes: Vec<String> = report.gaps.iter().map(gap).collect();
    if report.undecodable_count > report.undecodable.len() as u64 {
        let (shown, all) = (report.undecodable.len(), counted(report.undecodable_count, "value"));
        notes.push(format!("{all} cannot be decoded; only the first {shown} are listed"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use restow_audit::{Expectations, Tally};

    use super::*;

    #[test]
    fn the_exit_code_names_the_worst_finding() {
        let complete = Comparison::none();
        let key = b"/registry/example.com/widgets/default/a";
        let expecting = |version: &str| {
            let mut expected = Expectations::default();
            expected.expect_version(version).unwrap();
            expected
        };
        let report = |version: &str, values: &[&[u8]]| {
            let mut tally = Tally::new("/registry", expecting(version));
            values.iter().for_each(|value| tally.add(key, value));
            tally.report("x", 1)
        };
        let object: &[u8] = br#"{"apiVersion":"example.com/v1","kind":"Widget"}"#;
        let sealed: &[u8] = b"k8s:enc:aescbc:v1:key1:xxxx";
        for (version, values, expected) in [
            ("example.com/v1", &[object][..], 0),
            ("example.com/v2", &[object], STALE),
            ("example.com/v2", &[object, b"garbage"], STALE),
            ("example.com/v1", &[object, b"garbage"], UNDECODABLE),
            ("example.com/v1", &[sealed], INCOMPLETE),
        ] {
            assert_eq!(exit_code(&report(version, values), &complete), expected, "{version} {values:?}");
        }
        let unanswered = Comparison::unanswered();
        assert_eq!(exit_code(&report("example.com/v1", &[object]), &unanswered), INCOMPLETE);
    }
}
