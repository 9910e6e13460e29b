//! `restow migrate`: rewrites resources, one after the other.

use restow_core::inventory::{Obstacle, Resource};
use restow_core::progress::{End, Phase, Progress, exit_code};
use restow_core::resource::{GroupResource, GroupVersion};
use restow_migrate::cluster::{Cluster, Inventory};
use restow_migrate::migration::{self, ListMode, Migration, Settings};
use restow_migrate::prune::prune_stored_versions;
use restow_migrate::rewrite::{Manner, Unfinished};
use restow_migrate::stop::Stop;
use restow_migrate::throttle::Throttle;

use crate::args::{Connection, List, Migrate, ReportOutput, Verify};
use crate::connect::{connect, unanswered};
use crate::failure::Failure;
use crate::output;
use crate::report::{Left, Report, ResourceReport, Unavailable, summary};
use crate::select;
use crate::signals::stop_on_signals;
use crate::state::{Nowhere, ResourceState, StateDir};
use crate::view::View;

/// What all resources of a run share.
struct Run<'a> {
    cluster: &'a Cluster,
    flags: &'a Migrate,
    settings: Settings,
    throttle: Throttle,
    stop: Stop,
}

pub(crate) async fn run(connection: &Connection, flags: &Migrate) -> Result<u8, Failure> {
    let cluster = connect(connection).await?;
    let inventory = match cluster.inventory(flags.include_events).await {
        Ok(inventory) => inventory,
        Err(error) => return Err(unanswered(&cluster, error).await),
    };
    let dir = StateDir::open(flags.state_dir.as_deref(), &cluster.identity().await).map_err(broken_state)?;
    let chosen = choose(flags, &inventory, &dir)?;
    select::migratable(&chosen)?;
    select::permitted(&cluster, &chosen, flags.prune_stored_versions).await?;
    let run = Run {
        cluster: &cluster,
        flags,
        settings: settings(flags),
        throttle: Throttle::new(flags.pace.bounds()),
        stop: stop_on_signals(flags.timeout).map_err(Failure::failed)?.into(),
    };
    let unavailable = if flags.all { unavailable(&inventory) } else { Vec::new() };
    let mut report = Report { succeeded: false, resources: Vec::new(), unavailable };
    if flags.dry_run {
        for resource in chosen {
            report.resources.push(run.rehearse(resource).await);
        }
    } else {
        // All states are locked and kept before the first write.
        let mut states = Vec::new();
        for resource in &chosen {
            states.push(run.open(&dir, resource)?);
        }
        for (resource, (state, progress)) in chosen.into_iter().zip(states) {
            report.resources.push(run.migrate(resource, state, progress).await);
            if run.stop.is_stopped() {
                break;
            }
        }
    }
    Ok(finish(report, flags))
}

fn finish(mut report: Report, flags: &Migrate) -> u8 {
    // Everything was asked for, and these may have stored anything.
    for left in &report.unavailable {
        eprintln!("warning: {} was left out: {}", left.group_version, left.message);
    }
    let left_out = report.unavailable.iter().map(|_| End::Failed);
    let code = exit_code(report.resources.iter().map(|resource| resource.end).chain(left_out));
    report.succeeded = code == 0;
    match flags.output {
        ReportOutput::Table => report.resources.iter().for_each(|resource| output::print(&summary(resource))),
        ReportOutput::Json => output::print(&output::json(&report)),
        ReportOutput::Yaml => output::print(&output::yaml(&report)),
    }
    code
}

fn settings(flags: &Migrate) -> Settings {
    Settings {
        list: match flags.list {
            List::Streaming => ListMode::Streaming,
            List::Chunked | List::Auto => ListMode::Chunked,
        },
        verify: flags.verify == Verify::Full,
        manner: Manner { dry_run: flags.dry_run, repair_managed_fields: flags.repair_managed_fields },
        ..flags.pace.settings()
    }
}

fn choose<'a>(
    flags: &Migrate,
    inventory: &'a Inventory,
    dir: &StateDir,
) -> Result<Vec<&'a Resource>, Failure> {
    if flags.resume && flags.resources.is_empty() {
        let unfinished: Vec<String> =
            dir.unfinished().map_err(broken_state)?.iter().map(GroupResource::to_string).collect();
        if unfinished.is_empty() {
            return Err(Failure::usage("there is no unfinished run to resume on this cluster"));
        }
        return select::named(inventory, &unfinished);
    }
    if flags.all {
        return Ok(inventory.resources.iter().filter(|resource| resource.obstacle.is_none()).collect());
    }
    select::named(inventory, &flags.resources)
}

fn unavailable(inventory: &Inventory) -> Vec<Unavailable> {
    let each = |(version, obstacle): &(GroupVersion, Obstacle)| Unavailable {
        group_version: version.to_string(),
        message: obstacle.explain(),
    };
    inventory.unavailable.iter().map(each).collect()
}

fn broken_state(error: crate::state::StateError) -> Failure {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::failed(format!("{error}{cause}")).hint("--state-dir DIR keeps the progress elsewhere")
}

impl Run<'_> {
    fn migration<'t>(&'t self, resource: &'t Resource, view: &'t View<'t>) -> Migration<'t, View<'t>> {
        Migration {
            cluster: self.cluster,
            resource,
            settings: Settings { encrypted: is_secrets(resource) && !self.flags.dry_run, ..self.settings },
            throttle: &self.throttle,
            observer: view,
            stop: &self.stop,
        }
    }

    fn view(&self, resource: &Resource) -> View<'_> {
        View::new(resource.name.to_string(), &self.throttle, false)
    }

    /// Takes the state of a resource up: where its last run stopped, or from the beginning.
    fn open(&self, dir: &StateDir, resource: &Resource) -> Result<(ResourceState, Progress), Failure> {
        let mut state = dir.resource(&resource.name, self.cluster.server().name()).map_err(broken_state)?;
        let earlier = match state.load() {
            Ok(earlier) => earlier,
            Err(error) if self.flags.resume || self.flags.retry_quarantined => {
                return Err(broken_state(error));
            }
            Err(_) => None,
        };
        if self.flags.retry_quarantined {
            let none = || {
                Failure::usage(format!("no earlier run left objects of {}", resource.name)).hint(format!(
                    "{} migrate {} migrates all of them",
                    crate::program(),
                    resource.name
                ))
            };
            return earlier.filter(|p| p.phase == Phase::Done).map(|p| (state, p)).ok_or_else(none);
        }
        let hash = resource.hash.clone().unwrap_or_default();
        match earlier {
            Some(earlier) if earlier.phase != Phase::Done && self.flags.resume => {
                if earlier.storage_version_hash == hash {
                    return Ok((state, earlier));
                }
                eprintln!("{}: the storage version has changed since; starting anew", resource.name);
            }
            Some(earlier) if earlier.phase != Phase::Done && earlier.counts.listed > 0 => {
                eprintln!(
                    "{}: an unfinished run is replaced; --resume would have gone on with it",
                    resource.name
                );
            }
            _ if self.flags.resume => {
                eprintln!("{}: there is no unfinished run to resume; starting anew", resource.name);
            }
            _ => {}
        }
        state.reset(&[]).map_err(broken_state)?;
        let progress = unbegun(resource);
        // Kept at once, so that --resume knows the whole run even if it ends before this resource's turn.
        state
            .write(&progress, &[])
            .map_err(|error| Failure::failed(format!("keeping the progress: {error}")))?;
        Ok((state, progress))
    }

    async fn migrate(
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
            } else if progress.counts.listed == 0 {
                progress = migration.begin().await?;
            } else {
                view.say(&format!(
                    "going on; {} objects were done before",
                    output::count(progress.pass().done())
                ));
            }
            migration.run(&mut progress, &mut state).await
        };
        let result = result.await;
        view.end();
        let mut report = ResourceReport {
            end: end(&result, &progress),
            error: result.err().map(|failure| explain(&failure)),
            left: Left::File(state.left_path().to_owned()),
            pruned: None,
            dry_run: false,
            progress,
        };
        if self.flags.prune_stored_versions && report.end == End::Succeeded {
            self.prune(resource, &mut report).await;
        }
        report
    }

    async fn retry(
        &self,
        migration: &Migration<'_, View<'_>>,
        state: &mut ResourceState,
        progress: &mut Progress,
    ) -> Result<(), migration::Failure> {
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
                report.error = Some(format!("storedVersions were not pruned: {error}{cause}"));
                report.end = match error {
                    restow_migrate::prune::PruneError::Refused(_) => End::Unsafe,
                    restow_migrate::prune::PruneError::Request(_) => End::Failed,
                };
            }
        }
    }

    /// Sends every write as a dry run.
    async fn rehearse(&self, resource: &Resource) -> ResourceReport {
        let view = self.view(resource);
        let report = rehearse(&self.migration(resource, &view)).await;
        view.end();
        report
    }
}

/// Which keys encrypt what cannot be asked; Secrets are what is encrypted everywhere.
fn is_secrets(resource: &Resource) -> bool {
    resource.name == GroupResource::new("", "secrets")
}

/// The progress of a migration that nothing is agreed on yet; `begin` replaces it before the first write.
fn unbegun(resource: &Resource) -> Progress {
    let hash = resource.hash.as_deref().unwrap_or_default();
    Progress::new(resource.name.clone(), resource.storage_version_name(), hash, restow_clock::now())
}

/// Runs a migration whose writes are dry runs, and keeps nothing.
pub(crate) async fn rehearse(migration: &Migration<'_, View<'_>>) -> ResourceReport {
    let mut left = Nowhere(Vec::new());
    let resource = migration.resource;
    let mut progress = unbegun(resource);
    let result = async {
        progress = migration.begin().await?;
        migration.run(&mut progress, &mut left).await
    };
    let result = result.await;
    ResourceReport {
        end: end(&result, &progress),
        error: result.err().map(|failure| explain(&failure)),
        left: Left::Here(left.0),
        pruned: None,
        dry_run: true,
        progress,
    }
}

fn end(result: &Result<(), migration::Failure>, progress: &Progress) -> End {
    use migration::Failure as F;
    match result {
        Ok(()) if progress.counts.quarantined + progress.verify.quarantined > 0 => End::Left,
        Ok(()) => End::Succeeded,
        Err(F::Disagreement(_) | F::Moved(_)) => End::Unsafe,
        Err(F::Unfinished(Unfinished::Stopped)) => End::Stopped,
        Err(_) => End::Failed,
    }
}

fn explain(failure: &migration::Failure) -> String {
    let cause = std::error::Error::source(failure).map(|cause| format!(": {cause}")).unwrap_or_default();
    let advice = match failure {
        migration::Failure::Disagreement(why) => format!("; {}", why.advice()),
        _ => String::new(),
    };
    format!("{failure}{cause}{advice}")
}
