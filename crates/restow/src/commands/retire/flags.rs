//! The flags of `restow retire`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::args::{Pace, ReportOutput, Scope, duration};

/// Retire a version of a CRD: from the storage version to its removal, step by step
#[derive(Args)]
#[command(
    after_help = "It shows who still uses the version, and each step before it takes it: check that every object survives,
set another storage version, rewrite and verify all objects, prune storedVersions, stop serving the
version, move managedFields to the storage version, and drop the version from the CRD. All steps but the
last can be undone.

It can be interrupted at any time: run the same command again, and it continues.

Exit codes: 0 retired; 1 failed; 2 wrong usage; 3 objects were quarantined; 4 a gate says no; 130 interrupted.

Examples:
  restow retire widgets.example.com v1beta1 --dry-run   what would be done?
  restow retire widgets.example.com v1beta1             asks before each step
  restow retire widgets.example.com v1beta1 --yes       for scripts
  restow retire widgets.example.com v1beta1 --yes -o json
  restow retire widgets.example.com v1beta1 --manifest crd.yaml    the CRD is managed by Helm, Argo CD or Flux"
)]
pub(crate) struct Retire {
    /// The resource, such as widgets.example.com
    #[arg(value_name = "RESOURCE")]
    pub(super) resource: String,
    /// The version to retire, such as v1beta1
    #[arg(value_name = "VERSION")]
    pub(super) version: String,
    #[command(flatten)]
    scope: Scope,
    /// The version to store objects in, if the retired one is the storage version [default: the newest other one]
    #[arg(long, value_name = "VERSION")]
    pub(super) to: Option<String>,
    /// Take all steps without asking
    #[arg(short, long, conflicts_with = "dry_run")]
    pub(super) yes: bool,
    /// Show who uses the version, and all steps; nothing is written
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Retire a beta or stable version that the CRD does not call deprecated
    #[arg(long)]
    pub(super) undeprecated_ok: bool,
    /// Do not check whether objects survive being stored in the other version; what is lost is lost
    #[arg(long)]
    pub(super) lost_fields_ok: bool,
    /// Where the CRD's webhook can be reached from here, if it is a Service
    #[arg(long, value_name = "URL", conflicts_with = "lost_fields_ok")]
    pub(super) webhook_url: Option<String>,
    /// Stop serving the version although clients request it, or although that is not known
    #[arg(long)]
    pub(super) ignore_requests: bool,
    /// How long to count requests for the version before it is no longer served
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    pub(super) watch_requests: Duration,
    /// The file that the CRD is made from: changes of the CRD are made in it, and not in the cluster
    #[arg(long, value_name = "FILE")]
    pub(super) manifest: Option<PathBuf>,
    /// Change the CRD in the cluster although Helm, Argo CD or Flux manages it
    #[arg(long, conflicts_with = "manifest")]
    pub(super) change_managed_crd: bool,
    /// Stop after this time; run the command again to continue
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
    #[command(flatten)]
    pub(super) pace: Pace,
    /// How to print what was done; json and yaml print one object at the end
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = ReportOutput::Table)]
    pub(super) output: ReportOutput,
    /// Where to keep the progress of rewriting [default: $XDG_STATE_HOME/restow]
    #[arg(long, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,
}
