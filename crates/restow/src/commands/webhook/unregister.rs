//! `restow webhook unregister`: lets CRDs do without the webhook, if nothing needs a conversion.

use clap::Args;
use restow_webhook::registration::{Mode, RegistrationError, stanza, unregister};

use crate::args::Connection;
use crate::connect::connect;
use crate::error::{CliError, chain};
use crate::output::say;

/// The exit code if a CRD needs its webhook.
const UNSAFE: u8 = 4;

/// Let CRDs do without the webhook again, if only one version is stored and served
#[derive(Args)]
#[command(
    after_help = "Without the webhook, API servers change only apiVersion, and drop fields that a version does not have. So a
CRD keeps its webhook until a single version is stored and served; the message says what to do. The
webhook does not register itself again until you remove the annotation restow.dev/conversion-webhook.

The exit code is 4 if a CRD needs its webhook.

Examples:
  restow webhook unregister widgets.example.com
  restow webhook unregister widgets.example.com gadgets.example.com --dry-run"
)]
pub(super) struct Unregister {
    /// The names of CRDs, such as widgets.example.com
    #[arg(value_name = "CRD", required = true)]
    crds: Vec<String>,
    /// Only say whether it would be done
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command, and returns its exit code.
pub(super) async fn run(connection: &Connection, flags: &Unregister) -> Result<u8, CliError> {
    let client = connect(connection).await?.server().client().clone();
    let (mode, note) = if flags.dry_run { (Mode::Check, " (dry run)") } else { (Mode::Unregister, "") };
    let mut code = 0;
    for name in &flags.crds {
        match unregister(&client, name, mode).await {
            Ok(true) => say!(
                "{name} does without the webhook now{note}; to register it again, run: kubectl annotate crd {name} {}-",
                stanza::ANNOUNCED
            ),
            Ok(false) => say!("{name} has no conversion webhook: there was nothing to remove"),
            Err(error @ (RegistrationError::StillNeeded(_) | RegistrationError::Foreign(_))) => {
                say!("{error}");
                code = UNSAFE;
            }
            Err(error) => return Err(CliError::failed(chain(&error))),
        }
    }
    Ok(code)
}
