//! The flags of `restow migrate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};

use crate::args::{Pace, ReportOutput, Scope, duration};

/// Rewrite what is stored in an old version or under an old key, and verify it
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  restow migrate widgets.example.com
  restow migrate secrets --encrypted secrets            after a key rotation
  restow migrate secrets configmaps --encrypted secrets,configmaps
  restow migrate widgets --prune-stored-versions        then v1beta1 can be dropped from the CRD
  restow migrate widgets --retry-quarantined            just those that were left
  restow migrate --all --resume                         go on after ctrl-C or a crash")]
pub(crate) struct Migrate {
    /// Resources, such as secrets or widgets.example.com
    #[arg(value_name = "RESOURCE", value_delimiter = ',', required_unless_present_any = ["all", "resume"])]
    pub(crate) resources: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Every resource that can be migrated
    #[arg(long, conflicts_with = "resources")]
    pub(crate) all: bool,
    /// Send every write as a server-side dry run: nothing is stored
    #[arg(long, conflicts_with_all = ["resume", "retry_quarantined", "prune_stored_versions"])]
    pub(crate) dry_run: bool,
    /// Go on where an unfinished run was stopped
    #[arg(long, conflicts_with = "retry_quarantined")]
    pub(crate) resume: bool,
    /// Try once more just those objects that the last run left
    #[arg(long, conflicts_with = "all")]
    pub(crate) retry_quarantined: bool,
    /// What proves the end: a full second pass, or nothing
    #[arg(long, value_enum, default_value_t = Verify::Full, value_name = "HOW")]
    pub(crate) verify: Verify,
    /// After a verified run, cut a CRD's status.storedVersions down to its storage version
    #[arg(long)]
    pub(crate) prune_stored_versions: bool,
    /// Move managedFields entries of versions that are no longer served to the storage version
    #[arg(long)]
    pub(crate) repair_managed_fields: bool,
    /// What your encryption configuration covers, such as secrets,configmaps or *.*, or none: these are verified only
    /// if every API server reports one configuration, and no other is checked [default: secrets, as far as reported]
    #[arg(long, value_delimiter = ',', value_name = "RESOURCE")]
    pub(crate) encrypted: Vec<String>,
    /// Rewrite events too, which resets how long they live
    #[arg(long)]
    pub(crate) include_events: bool,
    /// Stop after so long; --resume goes on
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Where progress is kept [default: $XDG_STATE_HOME/restow]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The form of the report
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Table)]
    pub(crate) output: ReportOutput,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verify {
    Full,
    None,
}
