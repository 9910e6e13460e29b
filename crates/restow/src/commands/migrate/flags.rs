//! The flags of `restow migrate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};

use crate::args::{Pace, ReportOutput, Scope, duration};

/// Rewrite objects that are stored in an old version or under an old key, and verify the result
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  restow migrate widgets.example.com
  restow migrate secrets --encrypted secrets            after a key rotation
  restow migrate secrets configmaps --encrypted secrets,configmaps
  restow migrate widgets --prune-stored-versions        then v1beta1 can be removed from the CRD
  restow migrate widgets --retry-quarantined            only quarantined objects
  restow migrate --all --resume                         continue after ctrl-C or a crash")]
pub(crate) struct Migrate {
    /// Resources, such as secrets or widgets.example.com
    #[arg(value_name = "RESOURCE", value_delimiter = ',', required_unless_present_any = ["all", "resume"])]
    pub(crate) resources: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Migrate every resource that can be migrated
    #[arg(long, conflicts_with = "resources")]
    pub(crate) all: bool,
    /// Send every write as a server-side dry run: nothing is stored
    #[arg(long, conflicts_with_all = ["resume", "retry_quarantined", "prune_stored_versions"])]
    pub(crate) dry_run: bool,
    /// Continue an unfinished run where it stopped
    #[arg(long, conflicts_with = "retry_quarantined")]
    pub(crate) resume: bool,
    /// Retry only the objects that the last run quarantined
    #[arg(long, conflicts_with = "all")]
    pub(crate) retry_quarantined: bool,
    /// How to verify the result: with a full second pass, or not at all
    #[arg(long, value_enum, default_value_t = Verify::Full, value_name = "HOW")]
    pub(crate) verify: Verify,
    /// After a verified run, reduce a CRD's status.storedVersions to its storage version
    #[arg(long)]
    pub(crate) prune_stored_versions: bool,
    /// Move managedFields entries of versions that are no longer served to the storage version
    #[arg(long)]
    pub(crate) repair_managed_fields: bool,
    /// What your encryption configuration covers, such as secrets,configmaps or *.*, or none: these are verified
    /// only if every API server reports the same configuration, and others are not checked [default: secrets, if
    /// reported]
    #[arg(long, value_delimiter = ',', value_name = "RESOURCE")]
    pub(crate) encrypted: Vec<String>,
    /// Rewrite events too; this restarts their time to live
    #[arg(long)]
    pub(crate) include_events: bool,
    /// Stop after this time; continue with --resume
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Where to keep the progress [default: $XDG_STATE_HOME/restow]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The output format of the report
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Table)]
    pub(crate) output: ReportOutput,
}

impl Migrate {
    /// A run that other commands start: it rewrites, moves managedFields entries, verifies and prunes.
    pub(crate) fn whole(pace: Pace, state_dir: Option<PathBuf>) -> Self {
        Self {
            resources: Vec::new(),
            scope: Scope::default(),
            all: false,
            dry_run: false,
            resume: false,
            retry_quarantined: false,
            verify: Verify::Full,
            prune_stored_versions: true,
            repair_managed_fields: true,
            encrypted: Vec::new(),
            include_events: false,
            timeout: None,
            pace,
            state_dir,
            output: ReportOutput::Table,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verify {
    Full,
    None,
}
