//! Takes one step of a retirement.

use std::time::Duration;

use restow_clock::Instant;
use restow_core::controller::retirement::{Requests, Step, changed, requests_between};
use restow_core::resource::name::GroupVersion;
use restow_core::rewrite::progress::{End, exit_code};
use restow_migrate::client::RequestError;
use restow_migrate::definition::write_versions;

use super::look::Look;
use super::manifest;
use super::retirement::{CONFLICTS, Halt, REPEATS, Retirement};
use crate::commands::convert::survival;
use crate::commands::migrate;
use crate::commands::migrate::flags::Migrate;
use crate::error::CliError;
use crate::output::{self, say};
use crate::render::report::summary;
use crate::render::retire as render;
use crate::render::table::width;

/// How long other API servers may take to stop serving a version.
const UNSERVED_TIMEOUT: Duration = Duration::from_secs(120);
/// How long `--ignore-requests` waits for API servers that cannot be asked.
const UNASKED_TIMEOUT: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_secs(1);

impl Retirement<'_> {
    pub(super) async fn take(&mut self, look: &Look, step: &Step) -> Result<(), Halt> {
        // Requests count only for the very next step.
        self.requests = Requests::Unobserved;
        let written = self.written.len();
        self.act(look, step).await?;
        // After a conflict the step is decided again.
        if !step.changes_crd() || self.written.len() > written {
            self.taken.push(step.clone());
        }
        Ok(())
    }

    async fn act(&mut self, look: &Look, step: &Step) -> Result<(), Halt> {
        match step {
            Step::Check { from, to } => self.check(look, (from, to)).await,
            Step::SetStorage { .. } | Step::StopServing => self.write(look, step).await,
            Step::Drop => {
                self.unserved_everywhere(look).await?;
                self.write(look, step).await
            }
            Step::Rewrite => self.rewrite(look).await,
            Step::MoveOwners => {
                // Else a client of a server that lags could become an owner after the owners were counted.
                if look.definition.crd.versions.iter().any(|(name, _)| *name == self.flags.version) {
                    self.unserved_everywhere(look).await?;
                }
                self.rewrite(look).await
            }
            Step::WatchRequests => self.watch_requests(look).await,
            Step::Done => Ok(()),
        }
    }

    /// Converts every object as the rewrite will, and keeps what came of it for this state of the CRD.
    async fn check(&mut self, look: &Look, pair: (&[String], &str)) -> Result<(), Halt> {
        let server = self.cluster.server();
        let url = self.flags.webhook_url.as_deref();
        let stop = self.stop.clone();
        let check = survival(server, &look.resource, &look.definition, pair, url);
        let survival = stop.unless(check).await.ok_or(Halt::Stopped)??;
        self.survival = Some((look.definition.crd.definition(), survival));
        Ok(())
    }

    /// Rewrites all objects, and keeps the proof.
    async fn rewrite(&mut self, look: &Look) -> Result<(), Halt> {
        let flags = Migrate::whole(self.flags.pace.clone(), self.flags.state_dir.clone());
        let report = migrate::run_one(self.cluster, &look.resource, flags, &self.stop).await?;
        if self.prints_text() {
            output::print(&summary(&report, "", width()));
        }
        match report.end {
            End::Succeeded => {
                self.proof.clone_from(&report.progress.definition);
                Ok(())
            }
            End::Stopped => Err(Halt::Stopped),
            end => {
                say!("{}: not retired: not every object is proven to be rewritten", look.resource.name);
                Err(Halt::Exit(exit_code([end])))
            }
        }
    }

    async fn watch_requests(&mut self, look: &Look) -> Result<(), Halt> {
        let stop = self.stop.clone();
        let requests = stop.unless(self.count_requests(look)).await.ok_or(Halt::Stopped)?;
        say!("{}: {requests}", look.resource.name);
        self.requests = requests;
        Ok(())
    }

    async fn count_requests(&self, look: &Look) -> Requests {
        let count = || self.cluster.request_counts(&look.resource.name, &self.flags.version);
        let before = match count().await {
            Ok(before) => before,
            Err(why) => return Requests::Unknown(why),
        };
        tokio::time::sleep(self.flags.watch_requests).await;
        match count().await {
            Ok(after) => requests_between(&before, &after),
            Err(why) => Requests::Unknown(why),
        }
    }

    /// Waits until no API server serves the version: through one that does, a client could still become an owner.
    async fn unserved_everywhere(&self, look: &Look) -> Result<(), Halt> {
        let version = GroupVersion::new(&look.resource.name.group, &self.flags.version);
        let since = Instant::now();
        loop {
            let asked = self.stop.unless(self.cluster.still_serving(&look.resource.name, &version));
            let serving = asked.await.ok_or(Halt::Stopped)?;
            let why = match serving {
                Ok(serving) if serving.is_empty() => return Ok(()),
                Ok(serving) => serving.join("; "),
                // With sampled servers the agreement of the rewrite has to do.
                Err(why) if self.flags.ignore_requests && since.elapsed() > UNASKED_TIMEOUT => {
                    say!("warning: {why}");
                    return Ok(());
                }
                Err(why) => why,
            };
            if since.elapsed() > UNSERVED_TIMEOUT {
                say!("{}: {version} is not retired: {why}", look.resource.name);
                say!("--ignore-requests retires it all the same if the API servers cannot be asked");
                return Err(Halt::Exit(4));
            }
            self.stop.unless(tokio::time::sleep(ASK_EVERY)).await.ok_or(Halt::Stopped)?;
        }
    }

    /// Changes the CRD. If it has changed since it was read, the next step is decided again.
    async fn write(&mut self, look: &Look, step: &Step) -> Result<(), Halt> {
        let versions = changed(look.definition.versions(), &self.flags.version, step);
        if self.stop.is_stopped() {
            return Err(Halt::Stopped);
        }
        let name = &look.resource.name;
        if self.written.iter().filter(|written| *written == step).count() >= REPEATS {
            say!("{name}: not retired: something has undone the same change of the CRD {REPEATS} times");
            say!("find out what writes the CRD (its managedFields name it), and run the same command again");
            return Err(Halt::Exit(4));
        }
        let retired = (*step == Step::Drop).then_some(self.flags.version.as_str());
        let error = match write_versions(self.cluster.server(), &look.definition, &versions, retired).await {
            Ok(()) => {
                self.written.push(step.clone());
                return Ok(());
            }
            Err(error) => error,
        };
        self.conflicts += 1;
        match &error {
            RequestError::Refused { code: 409, .. } if self.conflicts < CONFLICTS => {
                say!("{name}: the CRD has changed in the meantime; looking again");
                Ok(())
            }
            error if !error.is_final() && self.conflicts < CONFLICTS => {
                say!("{name}: {error}; looking again whether the CRD was changed");
                self.stop.unless(tokio::time::sleep(ASK_EVERY)).await.ok_or(Halt::Stopped)
            }
            _ => Err(CliError::failed(format!("cannot change the CRD {name}: {error}"))
                .hint("the steps before this one stay taken; run the same command again to continue")
                .into()),
        }
    }

    /// Prints a step for the source of the CRD, or takes it in the manifest.
    pub(super) fn change_source(&self, look: &Look, step: &Step) -> Result<Halt, Halt> {
        let version = &self.flags.version;
        let after = changed(look.definition.versions(), version, step);
        match self.prints_text() {
            true => output::print(&render::source_change(&look.shown(), &after)),
            false => say!("{}", render::source_change(&look.shown(), &after).trim_end()),
        }
        let name = look.resource.name.to_string();
        let again = match step {
            Step::Drop => format!("with that, {version} is retired"),
            _ => "then run the same command again".to_owned(),
        };
        let next = match &self.flags.manifest {
            Some(path) => {
                let change = |versions: &[serde_json::Value]| changed(versions, version, step);
                match manifest::edit_file(path, &name, look.definition.versions(), change)? {
                    true => format!("{} was changed; apply it; {again}", path.display()),
                    false => format!("{} has this change already; apply it; {again}", path.display()),
                }
            }
            None => format!(
                "make this change in the source, and let it arrive; {again} (--manifest FILE edits a file, \
                 --change-managed-crd changes the CRD in the cluster)"
            ),
        };
        say!("{name}: {next}");
        Ok(Halt::Exit(4))
    }
}
