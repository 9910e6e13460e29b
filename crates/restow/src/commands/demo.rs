//! `restow demo`: a whole migration on its own servers, in under a minute and without a cluster.

mod boats;
mod held;
mod stage;
mod story;
mod users;

use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::commands::demo::story::Story;
use crate::error::CliError;

/// Show a whole migration on two built-in API servers, without a cluster
#[derive(ClapArgs)]
#[command(
    after_help = "Two API servers in this process share one store in a temporary folder. Users write all the \
    time. A server restarts, the servers disagree and then agree, and a migration is killed and resumed. At the \
    end, every stored object is checked.

Examples:
  restow demo               under a minute
  restow demo --keep        keep the servers running, to try kubectl and restow on them"
)]
pub(crate) struct Demo {
    /// How many objects to create
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000))]
    objects: u64,
    /// Keep the servers running at the end, and print how to reach them
    #[arg(long)]
    keep: bool,
    /// Keep the servers' data here instead of in a temporary folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Runs the demo.
pub(crate) async fn run(demo: &Demo) -> Result<u8, CliError> {
    let story = Story::begin(demo.objects, demo.data_dir.as_deref()).await?;
    story.run(demo.keep).await
}
