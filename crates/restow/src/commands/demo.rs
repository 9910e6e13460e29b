//! `restow demo`: the whole story on servers of its own, in under a minute and without a cluster.

mod boats;
mod held;
mod stage;
mod story;
mod users;

use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::commands::demo::story::Story;
use crate::error::CliError;

/// Show the whole story on two API servers of restow's own, without a cluster
#[derive(ClapArgs)]
#[command(
    after_help = "Two API servers in this process share one store in a temporary folder. Users write all the time; a server \
restarts, the servers disagree, agree, and a migration is killed and goes on. At the end every stored object is looked at.

Examples:
  restow demo               under a minute
  restow demo --keep        leave the servers running, to try kubectl and restow on them"
)]
pub(crate) struct Demo {
    /// How many objects there are
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000))]
    objects: u64,
    /// Leave the servers running at the end, and say how to reach them
    #[arg(long)]
    keep: bool,
    /// Keep the servers' data here, rather than in a temporary folder
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Tells the story.
pub(crate) async fn run(demo: &Demo) -> Result<u8, CliError> {
    let story = Story::begin(demo.objects, demo.data_dir.as_deref()).await?;
    story.tell(demo.keep).await
}
