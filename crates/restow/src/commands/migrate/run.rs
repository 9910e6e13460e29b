//! One run over the chosen resources.

use restow_api::Reason;
use restow_core::agreement::encryption::{KeyRequirement, Pattern};
use restow_core::controller::troubleshooting::explained;
use restow_core::resource::inventory::Resource;
use restow_core::rewrite::progress::{End, Phase, Progress};
use restow_lease::Stop;
use restow_migrate::client::Throttle;
use restow_migrate::cluster::Cluster;
use restow_migrate::migration::{self, Migration, MigrationSettings};
use restow_migrate::prune::prune_stored_versions;

use super::dry_run::{end, rehearse, unbegun};
use super::explain::explain;
use super::flags::Migrate;
use crate::error::CliError;
use crate::output::say;
use crate::program::program;
use crate::render::progress::{ProgressView, resuming_line};
use crate::render::report::{ResourceReport, unproven};
use crate::state_dir::{ResourceState, Saved, newest_unfinished};

/// What all resources of a run share.
pub(crate) struct Run<'a> {
    /// Identifies this run in the state files.
    pub(crate) id: String,
    pub(crate) cluster: &'a Cluster,
    pub(crate) flags: &'a Migrate,
    pub(crate) settings: MigrationSettings,
    /// The resources declared as encrypted, if any.
    pub(crate) encrypted: Option<Vec<Pattern>>,
    pub(crate) throttle: Throttle,
    pub(crate) stop: Stop,
}

impl Run<'_> {
    fn migration<'t>(
        &'t self,
        resource: &'t Resource,
        view: &'t ProgressView<'t>,
    ) -> Migration<'t, ProgressView<'t>> {
        Migration {
            cluster: self.cluster,
            resource,
            settings: MigrationSettings {
                encrypted: KeyRequirement::of(&resource.name, self.encrypted.as_deref()),
                ..self.settings
            },
            throttle: &self.throttle,
            observer: view,
            stop: &self.stop,
        }
    }

    fn view(&self, resource: &Resource) -> ProgressView<'_> {
        ProgressView::new(resource.name.to_string(), &self.throttle, self.flags.dry_run)
    }

    /// The saved progress of earlier runs, for each resource.
    pub(crate) fn earlier(&self, states: &mut [ResourceState]) -> Result<Vec<Option<Saved>>, CliError> {
        let load = |state: &mut ResourceState| match state.load() {
            Err(error) if self.flags.resume || self.flags.retry_quarantined => Err(error.into()),
            loaded => Ok(loaded.unwrap_or_default()),
        };
        states.iter_mut().map(load).collect()
    }

    /// The run that `--resume` continues: the newest one with an unfinished resource among the chosen.
    pub(crate) fn resumed(&self, earlier: &[Option<Saved>]) -> Option<String> {
        newest_unfinished(earlier.iter().flatten())
            .filter(|_| self.flags.resume)
            .map(|saved| saved.run.clone())
    }

    /// Opens the state of a resource: where its last run stopped, or from the beginning. Resources that the resumed run
    /// has finished are not migrated again.
    pub(crate) fn open(
        &self,
        resource: &Resource,
        mut state: ResourceState,
        earlier: Option<Saved>,
        resumed: Option<&str>,
    ) -> Result<(ResourceState, Progress), CliError> {
        let name = &resource.name;
        if self.flags.retry_quarantined {
            let none = || {
                CliError::usage(format!("no earlier run quarantined objects of {name}"))
                    .hint(format!("to migrate all of them, run: {} migrate {name}", program()))
            };
            let has_left = |saved: &Saved| {
                let progress = &saved.progress;
                progress.phase == Phase::Done && progress.counts.quarantined + progress.verify.quarantined > 0
            };
            let earlier = earlier.filter(has_left).ok_or_else(none)?;
            return Ok((state, earlier.progress));
        }
        let hash = resource.hash.clone().unwrap_or_default();
        match earlier {
            Some(earlier) if self.flags.resume && earlier.progress.storage_version_hash != hash => {
                say!("{name}: the storage version has changed since that run; starting over");
            }
            Some(earlier) if self.flags.resume && earlier.progress.phase != Phase::Done => {
                state.run = earlier.run;
                return Ok((state, earlier.progress));
            }
            // Finished in the run that is resumed: it is not migrated again unless something has changed since.
            Some(earlier) if resumed == Some(&earlier.run) => {
                state.run = earlier.run;
                return Ok((state, earlier.progress));
            }
            Some(earlier) if earlier.progress.phase != Phase::Done && earlier.progress.counts.listed > 0 => {
                say!("{name}: replacing an unfinished run; --resume would have continued it");
            }
            _ if self.flags.resume => say!("{name}: there is no unfinished run to resume; starting over"),
            _ => {}
        }
        state.run = resumed.unwrap_or(&self.id).to_owned();
        state.reset(&[])?;
        let progress = unbegun(resource);
        // Saved at once, so that --resume knows the whole run even if it ends before this resource.
        state
            .write(&progress, &[])
            .map_err(|error| CliError::failed(format!("cannot save the progress: {error}")))?;
        Ok((state, progress))
    }

    pub(crate) async fn migrate(
        &self,
        resource: &Resource,
        mut state: ResourceState,
        mut progress: Progress,
    ) -> ResourceReport {
        let view = self.view(resource);
        let migration = self.migration(resource, &view);
        let result = async {
            if self.flags.retry_quarantined {
                self.retry(&migration, &mut state, &mut progress).await?;
            } else if progress.phase == Phase::Rewriting && progress.counts.listed == 0 {
                progress = migration.begin().await?;
            } else if progress.phase == Phase::Done {
                view.say("already finished in the resumed run; checking that nothing has changed since");
            } else {
                view.say(&resuming_line(progress.pass().done()));
            }
            migration.run(&mut progress, &mut state).await
        };
        let result = result.await;
        view.end();
        let ended = end(&result, &progress);
        let error = match &result {
            Ok(()) => unproven(&progress),
            Err(failure) => Some(explain(self.cluster, resource, failure).await),
        };
        let mut report = ResourceReport {
            end: ended,
            error,
            retried: self.flags.retry_quarantined,
            ..ResourceReport::finished(&state, progress)
        };
        if self.flags.prune_stored_versions && report.end == End::Succeeded {
            self.prune(resource, &mut report).await;
        }
        report
    }

    async fn retry(
        &self,
        migration: &Migration<'_, ProgressView<'_>>,
        state: &mut ResourceState,
        progress: &mut Progress,
    ) -> Result<(), migration::MigrationError> {
        let left = state.left()?.collect();
        let still = migration.retry(progress, left).await?;
        state.reset(&still).map_err(std::io::Error::other)?;
        Ok(())
    }

    async fn prune(&self, resource: &Resource, report: &mut ResourceReport) {
        if resource.crd.is_none() {
            return;
        }
        match prune_stored_versions(self.cluster.server(), &report.progress).await {
            Ok(pruned) => report.pruned = pruned,
            Err(error) => {
                let cause =
                    std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
                let text = format!("storedVersions were not pruned: {error}{cause}");
                report.error = Some(explained(Reason::NotPruned, &text));
                report.end = match error {
                    restow_migrate::prune::PruneError::Refused(_) => End::Unsafe,
                    restow_migrate::prune::PruneError::Request(_) => End::Failed,
                };
            }
        }
    }

    /// Sends every write as a dry run.
    pub(crate) async fn rehearse(&self, resource: &Resource) -> ResourceReport {
        let view = self.view(resource);
        let report = rehearse(&self.migration(resource, &view)).await;
        view.end();
        report
    }
}
