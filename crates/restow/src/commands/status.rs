//! `restow status`: how far migrations are, and how resources are stored.

mod follow;
mod snapshot;

use std::time::Duration;

use clap::Args as ClapArgs;
use restow_api::{StorageState, StorageVersionMigration};

use crate::args::{Connection, Output, Scope, duration};
use crate::connect::connect;
use crate::error::CliError;
use crate::objects;
use crate::output::{self, say};
use crate::program::program;
use crate::render::table::width;
use follow::follow;
use snapshot::{Snapshot, known};

/// Show how far migrations are, and which resources are not all stored in their current version
#[derive(ClapArgs)]
#[command(
    after_help = "A storage state is settled when its objects can only be stored as the API servers write them now: \
its persisted hashes are just the current one. Until then, no API server may be installed that cannot read them all.

Examples:
  restow status                          every migration and every storage state
  restow status widgets.example.com      those of one resource
  restow status -w                       and go on showing them as they change
  restow status -w -o json | jq .        a line of JSON for each change
  restow status -o wide                  with every object that was left and is named"
)]
pub(crate) struct Status {
    /// Migrations, or resources such as widgets.example.com; all when none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    /// Go on showing them: redrawn in place on a terminal, a line for each change elsewhere
    #[arg(short, long)]
    watch: bool,
    /// Watch for so long
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "watch")]
    timeout: Option<Duration>,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(crate) async fn run(connection: &Connection, flags: &Status) -> Result<u8, CliError> {
    let cluster = connect(connection).await?;
    let server = cluster.server();
    let migrations: Vec<StorageVersionMigration> = objects::list(server).await?;
    let states: Vec<StorageState> = objects::list(server).await?;
    known(&flags.names, &migrations, &states)?;
    if flags.watch {
        return follow(server, &flags.names, flags.output, flags.timeout).await;
    }
    let snapshot = Snapshot::new(&flags.names, migrations.iter(), states.iter(), restow_clock::now());
    output::print(&snapshot.text(flags.output, width()));
    if snapshot.is_empty() {
        say!("there are no migrations; {} init makes them", program());
    }
    Ok(0)
}
