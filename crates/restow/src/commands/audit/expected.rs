//! What the audited objects should be stored as: what the cluster says, if it answers, and what the user says.

use std::path::Path;
use std::time::Duration;

use restow_audit::{Expectations, Report, Served};
use restow_migrate::cluster::{Cluster, Inventory};
use restow_store::encryption::Transformers;

use crate::args::Connection;
use crate::commands::audit::source::read;
use crate::connect::{connect, unanswered};
use crate::error::CliError;
use crate::output::say;

/// How long the cluster may take to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What the report is compared with.
pub(super) struct Comparison {
    /// The uid of the cluster that was asked.
    cluster: Option<String>,
    /// Whether something should have been compared and could not be.
    is_incomplete: bool,
}

impl Comparison {
    /// With no cluster.
    pub(super) fn none() -> Self {
        Self { cluster: None, is_incomplete: false }
    }

    /// With a cluster that did not answer.
    pub(super) fn unanswered() -> Self {
        Self { cluster: None, is_incomplete: true }
    }

    /// Whether everything was compared that should be.
    pub(super) fn is_complete(&self) -> bool {
        !self.is_incomplete
    }

    /// Fails if the report is of another cluster than the one that was asked.
    pub(super) fn check(&self, report: &Report) -> Result<(), CliError> {
        match (&self.cluster, &report.cluster) {
            (Some(asked), Some(stored)) if asked != stored => Err(CliError::failed(format!(
                "{} is not of the cluster that was asked: its namespace kube-system has uid {stored}, and the \
                cluster's has {asked}",
                report.source
            ))
            .hint("choose its cluster with --kubeconfig or --context, or give --offline and --expect")),
            _ => Ok(()),
        }
    }
}

/// What to expect, from the cluster and the flags.
pub(super) async fn expected(
    connection: &Connection,
    versions: &[String],
    encryption_config: Option<&Path>,
    offline: bool,
) -> Result<(Expectations, Comparison), CliError> {
    let mut expected = Expectations::default();
    for version in versions {
        expected.expect_version(version).map_err(|error| CliError::usage(format!("--expect: {error}")))?;
    }
    let mut config_hash = None;
    if let Some(path) = encryption_config {
        let transformers = Transformers::parse_to_inspect(&read(path)?)
            .map_err(|error| CliError::usage(format!("{}: {error}", path.display())))?;
        config_hash = Some(transformers.hash().to_owned());
        expected.set_transformers(transformers);
    }
    let comparison = match cluster(connection, offline, versions.is_empty()).await? {
        None => Comparison::none(),
        Some(cluster) => ask(&cluster, &mut expected, config_hash.as_deref(), !versions.is_empty()).await,
    };
    Ok((expected, comparison))
}

/// The cluster to ask, if there is one.
async fn cluster(
    connection: &Connection,
    offline: bool,
    is_needed: bool,
) -> Result<Option<Cluster>, CliError> {
    if offline {
        return Ok(None);
    }
    match connect(connection).await {
        Ok(cluster) => Ok(Some(cluster)),
        // Without any flag for it, no cluster need be meant.
        Err(error) if !is_named(connection) => {
            if is_needed {
                say!("no cluster was asked for its storage versions: {error}");
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether a flag or the environment names a cluster.
fn is_named(connection: &Connection) -> bool {
    let by_flag = connection.kubeconfig.is_some()
        || connection.context.is_some()
        || connection.cluster.is_some()
        || connection.server.is_some();
    by_flag || std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty())
}

/// Takes over what the cluster says. If it does not answer, only what the user expects is compared.
async fn ask(
    cluster: &Cluster,
    expected: &mut Expectations,
    config_hash: Option<&str>,
    is_expected: bool,
) -> Comparison {
    let inventory = match tokio::time::timeout(TIMEOUT, cluster.inventory(true)).await {
        Ok(Ok(inventory)) => inventory,
        Ok(Err(error)) => return silent(unanswered(cluster, error).await, is_expected),
        Err(_) => {
            let late = format!("{} did not answer within {} s", cluster.server().name(), TIMEOUT.as_secs());
            return silent(CliError::failed(late), is_expected);
        }
    };
    take(&inventory, expected);
    let mut is_incomplete = false;
    for (version, obstacle) in &inventory.unavailable {
        say!("warning: {version} is not compared: {}", obstacle.explain());
        is_incomplete = true;
    }
    if let Some(hash) = config_hash
        && let Some(other) = other_configuration(cluster, hash).await
    {
        say!(
            "warning: the API servers use another encryption configuration ({other}), so keys may be judged wrongly"
        );
        is_incomplete = true;
    }
    let identity = cluster.identity().await;
    let is_uid =
        identity.len() == 36 && identity.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    Comparison { cluster: is_uid.then_some(identity), is_incomplete }
}

fn silent(error: CliError, is_expected: bool) -> Comparison {
    error.about("storage versions are not compared with the cluster").warn();
    // What the user expects is enough.
    if is_expected { Comparison::none() } else { Comparison::unanswered() }
}

/// Takes over storage versions and served resources.
fn take(inventory: &Inventory, expected: &mut Expectations) {
    let mut served = Served::default();
    for resource in &inventory.resources {
        let name = resource.name.to_string();
        if let Some(version) = &resource.storage_version {
            expected.expect_storage(name.clone(), version.to_string());
        }
        served.resources.insert(name);
    }
    served.unknown_groups = inventory.unavailable.iter().map(|(version, _)| version.group.clone()).collect();
    expected.set_served(served);
}

/// The configuration that the API servers report, if it is another one than this.
async fn other_configuration(cluster: &Cluster, hash: &str) -> Option<String> {
    let encryption = cluster.encryption_if_reported().await.ok()?;
    let mut reported = encryption.heard.iter().filter_map(|(_, hash)| hash.clone());
    reported.find(|reported| reported.split('+').next() != Some(hash))
}

#[cfg(test)]
mod tests {
    use restow_audit::Tally;

    use super::*;

    #[test]
    fn a_report_of_another_cluster_is_refused() {
        let report = |uid: Option<&str>| {
            let mut report = Tally::new("/registry", Expectations::default()).report("backup.db", 1);
            report.cluster = uid.map(str::to_owned);
            report
        };
        let comparison = Comparison { cluster: Some("a".to_owned()), is_incomplete: false };
        assert!(comparison.check(&report(Some("a"))).is_ok());
        assert!(comparison.check(&report(None)).is_ok());
        assert!(comparison.check(&report(Some("b"))).is_err());
        assert!(Comparison::none().check(&report(Some("b"))).is_ok());
    }
}
