//! Shows the steps and takes one after the other.

use restow_core::controller::retirement::{Refusal, Requests, Step, is_version_name, next_step, plan};

use super::ask;
use super::flags::Retire;
use super::look::Look;
use super::retirement::{Halt, Retirement};
use crate::args::{Connection, ReportOutput};
use crate::connect::connect;
use crate::error::CliError;
use crate::output::{self, say};
use crate::program::program;
use crate::render::retire as render;
use crate::render::table::width;
use crate::render::text::{json, yaml};
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
        survival: None,
        conflicts: 0,
        written: Vec::new(),
        taken: Vec::new(),
        seen: None,
        refused: None,
    };
    let ended = retirement.retire().await;
    retirement.report();
    match ended {
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
        let (steps, refusal) = plan(&look.observed);
        if self.prints_text() {
            output::print(&render::usage(&look.shown(), &counted, width()));
            output::print(&render::plan(&look.shown(), &steps, self.flags.watch_requests, width()));
        }
        if self.flags.dry_run {
            return self.dry_run(look, refusal).await;
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
            if asks && !step.only_reads() {
                self.ask().await?;
            }
            self.take(&look, &step).await?;
            look = self.look().await?;
        }
    }

    /// Whether stdout is for a person.
    pub(super) fn prints_text(&self) -> bool {
        self.flags.output == ReportOutput::Table
    }

    /// Looks for what would stop the steps. The check writes nothing, so it is made for real.
    async fn dry_run(&mut self, mut look: Look, refusal: Option<Refusal>) -> Result<(), Halt> {
        if let Ok(step @ Step::Check { .. }) = next_step(&look.observed) {
            say!("{}", render::step(&look.shown(), &step, self.flags.watch_requests));
            self.take(&look, &step).await?;
            look = self.look().await?;
        }
        let refusal = next_step(&look.observed).err().or(refusal);
        refusal.map_or(Ok(()), |refusal| Err(self.refuse(&look, &refusal)))
    }

    /// Prints what was done as one object, if that was asked for.
    fn report(&self) {
        let (Some(seen), Some(owners)) = (&self.seen, &self.owners) else { return };
        let report = render::report(seen, owners, &self.taken, self.refused.as_ref());
        match self.flags.output {
            ReportOutput::Table => {}
            ReportOutput::Json => output::print(&json(&report)),
            ReportOutput::Yaml => output::print(&yaml(&report)),
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
    fn refuse(&mut self, look: &Look, refusal: &Refusal) -> Halt {
        self.refused = Some(refusal.clone());
        let name = &look.resource.name;
        say!("{name}: {}", render::refusal(&look.shown(), refusal));
        Halt::Exit(match refusal {
            Refusal::OnlyVersion(_) | Refusal::NoSuchVersion { .. } | Refusal::WrongTarget { .. } => 2,
            Refusal::Unreadable(_) => 3,
            _ => 4,
        })
    }
}
