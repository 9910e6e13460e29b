//! Shows the steps and takes one after the other.

use restow_core::controller::retirement::{Refusal, Requests, Step, is_version_name, next_step, plan};

use super::ask;
use super::flags::Retire;
use super::look::Look;
use super::retirement::{Halt, Retirement};
use crate::args::Connection;
use crate::connect::connect;
use crate::error::CliError;
use crate::output::{self, say};
use crate::program::program;
use crate::render::retire as render;
use crate::render::table::width;
use crate::signals::{STOPPED, stop_on_signals};

/// Runs the command, and returns its exit code.
pub(crate) async fn run(connection: &Connection, flags: &Retire) -> Result<u8, CliError> {
    if !is_version_name(&flags.version) {
        return Err(CliError::usage(format!("{:?} is not the name of a version", flags.version))
            .hint("give the version without its group, such as v1beta1"));
    }
    let cluster = connect(connection).await?;
    let mut retirement = Retirement {
        cluster: &cluster,
        flags,
        stop: stop_on_signals(flags.timeout).map_err(CliError::failed)?.into(),
        requests: Requests::Unobserved,
        proof: None,
        owners: None,
        conflicts: 0,
        written: Vec::new(),
    };
    match retirement.retire().await {
        Ok(()) => Ok(0),
        Err(Halt::Exit(code)) => Ok(code),
        Err(Halt::Failed(error)) => Err(error),
        Err(Halt::Stopped) => {
            say!("interrupted; to continue, run the same command again");
            Ok(STOPPED)
        }
    }
}

impl Retirement<'_> {
    async fn retire(&mut self) -> Result<(), Halt> {
        let mut look = self.look().await?;
        let counted = self.cluster.request_counts(&look.resource.name, &self.flags.version).await;
        output::print(&render::usage(&look.shown(), &counted, width()));
        let (steps, refusal) = plan(&look.observed);
        output::print(&render::plan(&look.shown(), &steps, self.flags.watch_requests, width()));
        if self.flags.dry_run {
            return refusal.map_or(Ok(()), |refusal| Err(self.refuse(&look, &refusal)));
        }
        let asks = !self.flags.yes;
        if asks && !steps.is_empty() && !ask::can_ask() {
            let again = format!("{} retire {} {}", program(), look.resource.name, self.flags.version);
            return Err(CliError::usage("nobody can be asked before each step: stdin is not a terminal")
                .hint(format!("to take all steps, run: {again} --yes"))
                .into());
        }
        if !steps.is_empty() {
            self.permitted(&look).await?;
        }
        loop {
            let step = next_step(&look.observed).map_err(|refusal| self.refuse(&look, &refusal))?;
            if step == Step::Done {
                say!("{}", render::done(&look.shown()));
                return Ok(());
            }
            if step.changes_crd() && self.is_elsewhere(&look) {
                return Err(self.change_source(&look, &step)?);
            }
            say!("{}", render::step(&look.shown(), &step, self.flags.watch_requests));
            if asks && step != Step::WatchRequests {
                self.ask().await?;
            }
            self.take(&look, &step).await?;
            look = self.look().await?;
        }
    }

    async fn ask(&self) -> Result<(), Halt> {
        match self.stop.unless(ask::ask("Take this step?")).await {
            None => Err(Halt::Stopped),
            Some(true) => Ok(()),
            Some(false) => {
                say!("stopped before this step; to continue, run the same command again");
                Err(Halt::Exit(STOPPED))
            }
        }
    }

    /// Says why there is no next step, and what to do.
    fn refuse(&self, look: &Look, refusal: &Refusal) -> Halt {
        let name = &look.resource.name;
        say!("{name}: {}", render::refusal(&look.shown(), refusal));
        Halt::Exit(match refusal {
            Refusal::OnlyVersion(_) | Refusal::WrongTarget { .. } => 2,
            Refusal::Unreadable(_) => 3,
            _ => 4,
        })
    }
}
