//! `restow status`: the progress of migrations and Conversions, and how resources are stored.

mod follow;
mod snapshot;

use std::time::Duration;

use clap::Args as ClapArgs;
use restow_api::{Conversion, StorageState, StorageVersionMigration};

use restow_migrate::client::Server;

use crate::args::{Connection, Output, Scope, duration};
use crate::connect::connect;
use crate::error::CliError;
use crate::objects;
use crate::output::{self, say};
use crate::program::program;
use crate::render::table::width;
use follow::follow;
use snapshot::{Snapshot, known};

/// Show the progress of migrations and Conversions, and which resources may still have objects in an old version
#[derive(ClapArgs)]
#[command(
    after_help = "A storage state is settled when all objects are known to be stored as the API servers write \
    them now: the current hash is then the only persisted one. Until then, do not install an API server that \
    cannot read every persisted version.

Examples:
  restow status                          every migration, storage state and Conversion
  restow status widgets.example.com      only those of one resource
  restow status -w                       keep showing them as they change
  restow status -w -o json | jq .        a line of JSON for each change
  restow status -o wide                  with all quarantined objects that the status lists"
)]
pub(crate) struct Status {
    /// Migrations, Conversions, or resources such as widgets.example.com [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    /// Keep showing them: redrawn in place on a terminal, otherwise one line for each change
    #[arg(short, long)]
    watch: bool,
    /// How long to watch
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "watch")]
    timeout: Option<Duration>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(crate) async fn run(connection: &Connection, flags: &Status) -> Result<u8, CliError> {
    let cluster = connect(connection).await?;
    let server = cluster.server();
    let migrations: Vec<StorageVersionMigration> = objects::list(server).await?;
    let states: Vec<StorageState> = objects::list(server).await?;
    let conversions = conversions(server).await;
    known(&flags.names, &migrations, &states, conversions.as_deref().unwrap_or_default())?;
    if flags.watch {
        return follow(server, &flags.names, flags.output, flags.timeout, conversions.is_some()).await;
    }
    let now = restow_clock::now();
    let snapshot = Snapshot::new(&flags.names, migrations.iter(), states.iter(), now).and(
        &flags.names,
        conversions.iter().flatten(),
        now,
    );
    output::print(&snapshot.text(flags.output, width()));
    if snapshot.is_empty() {
        say!("there are no migrations; to create them, run: {} init", program());
    }
    Ok(0)
}

/// All Conversions; none if there is no such resource here. Without the permission to list them, the rest is shown, and a warning.
async fn conversions(server: &Server) -> Option<Vec<Conversion>> {
    match objects::list_if_defined::<Conversion>(server).await {
        Ok(conversions) if !conversions.is_empty() => Some(conversions),
        Ok(_) => None,
        Err(error) => {
            error.about("Conversions are not shown").warn();
            None
        }
    }
}
