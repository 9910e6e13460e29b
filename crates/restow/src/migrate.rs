//! `restow migrate`: rewrites resources, one after the other.

use restow_core::encryption::{Demand, Pattern};
use restow_core::inventory::{Need, Obstacle, Resource};
use restow_core::progress::{End, Phase, Progress, exit_code};
use restow_core::resource::GroupVersion;
use restow_core::troubleshooting::explained;
use restow_lease::Stop;
use restow_migrate::cluster::{Cluster, Inventory};
use restow_migrate::migration::{self, Migration, Settings};
use restow_migrate::prune::prune_stored_versions;
use restow_migrate::rewrite::{Manner, Unfinished};
use restow_migrate::throttle::Throttle;

use crate::again;
use crate::args::{Connection, Migrate, ReportOutput, Verify};
use crate::connect::{connect, unanswered};
use crate::explain::explain;
use crate::failure::Failure;
use crate::output;
use crate::output::say;
use crate::report::{Left, Report, ResourceReport, Unavailable, summary};
use crate::select;
use crate::signals::stop_on_signals;
use crate::state::{Nowhere, ResourceState, Saved, StateDir, StateError, newest_unfinished};
use crate::table::width;
use crate::view::View;

/// What all resources of a run share.
struct Run<'a> {
    /// Tells this run from others in the state files.
    id: String,
    cluster: &'a Cluster,
    flags: &'a Migrate,
    settings: Settings,
    /// What the user says is encrypted, if anything.
    encrypted: Option<Vec<Pattern>>,
    throttle: Throttle,
    stop: Stop,
}

pub(crate) async fn run(connection: &Connection, flags: &Migrate) -> Result<u8, Failure> {
    let ended = migrate(connection, flags).await;
    if let Err(failure) = &ended {
        // A script that asked for a document gets one, however early the run failed.
        write(&Report { error: Some(failure.to_string()), ..Report::default() }, connection, flags);
    }
    ended
}

async fn migrate(connection: &Connection, flags: &Migrate) -> Result<u8, Failure> {
    let cluster = connect(connection).await?;
    let inventory = match cluster.inventory(flags.include_events).await {
        Ok(inventory) => inventory,
        Err(error) => return Err(unanswered(&cluster, error).await),
    };
    let dir = StateDir::open(flags.state_dir.as_deref(), &cluster.identity().await).map_err(broken_state)?;
    let encrypted = select::encrypted(&inventory, &flags.encrypted)?;
    let Chosen { resources: chosen, lost } = choose(flags, &inventory, &dir)?;
    select::migratable(&chosen)?;
    select::permitted(&cluster, &chosen, flags.prune_stored_versions).await?;
    let run = Run {
        id: format!("{:016x}", restow_clock::random()),
        cluster: &cluster,
        flags,
        settings: settings(flags),
        encrypted,
        throttle: Throttle::new(flags.pace.bounds()),
        stop: stop_on_signals(flags.timeout).map_err(Failure::failed)?.into(),
    };
    let unavailable = if flags.all { unavailable(&inventory) } else { Vec::new() };
    let mut report = Report { unavailable, resources: lost, ..Report::default() };
    if flags.dry_run {
        for resource in chosen {
            report.resources.push(run.rehearse(resource).await);
        }
    } else {
        // All states are locked and kept before the first write; each lock is an open file.
        raise_open_files();
        let mut states = Vec::new();
        for resource in &chosen {
            states.push(dir.resource(&resource.name, cluster.server().name()).map_err(broken_state)?);
        }
        let earlier = run.earlier(&mut states)?;
        let resumed = resumed_run(flags, &earlier);
        let mut opened = Vec::new();
        for ((resource, state), earlier) in chosen.into_iter().zip(states).zip(earlier) {
            opened.push((resource, run.open(resource, state, earlier, resumed.as_deref())?));
        }
        for (resource, opened) in opened {
            let (state, progress) = opened;
            report.resources.push(if run.stop.is_stopped() {
                ResourceReport::stopped(&state, progress)
            } else {
                run.migrate(resource, state, progress).await
            });
        }
    }
    Ok(finish(report, connection, flags))
}

/// Lets this process have as many files open as it may: the usual limit is below the number of resources of some
/// clusters.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where that is refused, opening the file that is one too many says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The run that `--resume` goes on with: the newest one that has an unfinished resource among the chosen.
fn resumed_run(flags: &Migrate, earlier: &[Option<Saved>]) -> Option<String> {
    newest_unfinished(earlier.iter().flatten()).filter(|_| flags.resume).map(|saved| saved.run.clone())
}

fn finish(mut report: Report, connection: &Connection, flags: &Migrate) -> u8 {
    // Everything was asked for, and these may have stored anything.
    for left in &report.unavailable {
        say!("warning: {} was left out: {}", left.group_version, left.message);
    }
    let left_out = report.unavailable.iter().map(|_| End::Failed);
    let code = exit_code(report.resources.iter().map(|resource| resource.end).chain(left_out));
    report.succeeded = code == 0;
    write(&report, connection, flags);
    code
}

fn write(report: &Report, connection: &Connection, flags: &Migrate) {
    match flags.output {
        ReportOutput::Table => {
            let again = again::flags(connection, flags);
            report.resources.iter().for_each(|resource| output::print(&summary(resource, &again, width())));
        }
        ReportOutput::Json => output::print(&output::json(report)),
        ReportOutput::Yaml => output::print(&output::yaml(report)),
    }
}

/// What a run is about.
#[derive(Default)]
struct Chosen<'a> {
    resources: Vec<&'a Resource>,
    /// Unfinished ones that cannot be resumed, because they are not served any more.
    lost: Vec<ResourceReport>,
}

fn settings(flags: &Migrate) -> Settings {
    Settings {
        verify: flags.verify == Verify::Full,
        manner: Manner { dry_run: flags.dry_run, repair_managed_fields: flags.repair_managed_fields },
        ..flags.pace.settings()
    }
}

fn choose<'a>(flags: &Migrate, inventory: &'a Inventory, dir: &StateDir) -> Result<Chosen<'a>, Failure> {
    let mut chosen = Chosen::default();
    if flags.resume && flags.resources.is_empty() {
        chosen = unfinished(inventory, dir)?;
    }
    if flags.all {
        let can_be_migrated = |resource: &&Resource| resource.obstacle.is_none();
        chosen.resources = inventory.resources.iter().filter(can_be_migrated).collect();
    } else if !flags.resources.is_empty() {
        chosen.resources = select::named(inventory, &flags.resources)?;
    }
    Ok(chosen)
}

/// Every resource whose run has not ended, and those that the newest of these runs has finished: objects that it left
/// are not forgotten. One that is no longer served does not stop the others.
fn unfinished<'a>(inventory: &'a Inventory, dir: &StateDir) -> Result<Chosen<'a>, Failure> {
    let mut chosen = Chosen::default();
    for (path, progress) in dir.unfinished().map_err(broken_state)? {
        let found = inventory.resources.iter().find(|resource| resource.name == progress.resource);
        match found {
            Some(resource) if resource.obstacle.is_none() => chosen.resources.push(resource),
            _ if progress.phase == Phase::Done => {}
            found => {
                let why = found.and_then(|resource| resource.obstacle.as_ref()).map(Obstacle::explain);
                let why = why.unwrap_or_else(|| "no API server that answered serves it".to_owned());
                let group = &progress.resource.group;
                let down = inventory.unavailable.iter().any(|(version, _)| version.group == *group);
                let advice = if down {
                    "try again when its API server answers".to_owned()
                } else {
                    format!("if the resource was deleted, delete {} too", path.display())
                };
                let error = format!("its unfinished run cannot be resumed: {why}; {advice}");
                chosen.lost.push(ResourceReport::lost(progress, error));
            }
        }
    }
    if chosen.resources.is_empty() && chosen.lost.is_empty() {
        return Err(Failure::usage("there is no unfinished run to resume on this cluster"));
    }
    Ok(chosen)
}

fn unavailable(inventory: &Inventory) -> Vec<Unavailable> {
    let each = |(version, obstacle): &(GroupVersion, Obstacle)| Unavailable {
        group_version: version.to_string(),
        message: obstacle.explain(),
    };
    // It needs a migration and has none: that is not "everything".
    let unserved = |resource: &Resource| match &resource.obstacle {
        Some(why @ (Obstacle::Unserved(_) | Obstacle::Unregistered(_)))
            if resource.need() != Need::Unlikely =>
        {
            Some(Unavailable { group_version: resource.name.to_string(), message: why.explain() })
        }
        _ => None,
    };
    let unserved = inventory.resources.iter().filter_map(unserved);
    inventory.unavailable.iter().map(each).chain(unserved).collect()
}

fn broken_state(error: StateError) -> Failure {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    let failure = Failure::failed(format!("{error}{cause}"));
    match error {
        // Another directory would let two runs of one resource work side by side.
        StateError::Locked(_) => failure,
        _ => failure.hint("--state-dir DIR keeps the progress elsewhere"),
    }
}

impl Run<'_> {
    fn migration<'t>(&'t self, resource: &'t Resource, view: &'t View<'t>) -> Migration<'t, View<'t>> {
        Migration {
            cluster: self.cluster,
            resource,
            settings: Settings {
                encrypted: Demand::of(&resource.name, self.encrypted.as_deref()),
                ..self.settings
            },
            throttle: &self.throttle,
            observer: view,
            stop: &self.stop,
        }
    }

    fn view(&self, resource: &Resource) -> View<'_> {
        View::new(resource.name.to_string(), &self.throttle, self.flags.dry_run)
    }

    /// What earlier runs have left of each resource.
    fn earlier(&self, states: &mut [ResourceState]) -> Result<Vec<Option<Saved>>, Failure> {
        let load = |state: &mut ResourceState| match state.load() {
            Err(error) if self.flags.resume || self.flags.retry_quarantined => Err(broken_state(error)),
            loaded => Ok(loaded.unwrap_or_default()),
        };
        states.iter_mut().map(load).collect()
    }

    /// Takes up the state of a resource: where its last run stopped, or from the beginning. What the resumed run has
    /// finished already is not done again.
    fn open(
        &self,
        resource: &Resource,
        mut state: ResourceState,
        earlier: Option<Saved>,
        resumed: Option<&str>,
    ) -> Result<(ResourceState, Progress), Failure> {
        let name = &resource.name;
        if self.flags.retry_quarantined {
            let none = || {
                Failure::usage(format!("no earlier run left objects of {name}"))
                    .hint(format!("{} migrate {name} migrates all of them", crate::program()))
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
                say!("{name}: the storage version has changed since; starting anew");
            }
            Some(earlier) if self.flags.resume && earlier.progress.phase != Phase::Done => {
                state.run = earlier.run;
                return Ok((state, earlier.progress));
            }
            // Finished in the run that is resumed: nothing is done again unless something has moved since.
            Some(earlier) if resumed == Some(&earlier.run) => {
                state.run = earlier.run;
                return Ok((state, earlier.progress));
            }
            Some(earlier) if earlier.progress.phase != Phase::Done && earlier.progress.counts.listed > 0 => {
                say!("{name}: an unfinished run is replaced; --resume would have gone on with it");
            }
            _ if self.flags.resume => say!("{name}: there is no unfinished run to resume; starting anew"),
            _ => {}
        }
        state.run = resumed.unwrap_or(&self.id).to_owned();
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
            } else if progress.phase == Phase::Rewriting && progress.counts.listed == 0 {
                progress = migration.begin().await?;
            } else if progress.phase == Phase::Done {
                view.say(
                    "already finished in the run that is resumed; checking that nothing has moved since",
                );
            } else {
                let done = progress.pass().done();
                let were = if done == 1 { "was" } else { "were" };
                view.say(&format!("going on; {} {were} done before", output::counted(done, "object")));
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
                let text = format!("storedVersions were not pruned: {error}{cause}");
                report.error = Some(explained("NotPruned", &text));
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
    let ended = end(&result, &progress);
    let error = match &result {
        Ok(()) => None,
        Err(failure) => Some(explain(migration.cluster, resource, failure).await),
    };
    ResourceReport {
        end: ended,
        error,
        left: Left::Here(left.0),
        pruned: None,
        dry_run: true,
        retried: false,
        progress,
    }
}

fn end(result: &Result<(), migration::Failure>, progress: &Progress) -> End {
    use migration::Failure as F;
    match result {
        Ok(()) => finished(progress),
        Err(F::Disagreement(_) | F::Moved(_)) => End::Unsafe,
        Err(F::Unfinished(Unfinished::Stopped)) => End::Stopped,
        Err(_) => End::Failed,
    }
}

/// How a run that came to its end ended.
pub(crate) fn finished(progress: &Progress) -> End {
    match progress.unproven {
        _ if progress.counts.quarantined + progress.verify.quarantined > 0 => End::Left,
        Some(_) => End::Unsafe,
        None => End::Succeeded,
    }
}

/// What a run that is complete does not prove.
pub(crate) fn unproven(progress: &Progress) -> Option<String> {
    let why = progress.unproven.as_ref()?;
    let advice = if progress.keys.unchecked.is_empty() && !progress.keys.untold.is_empty() {
        "keep the old key, or say what is encrypted with --encrypted if this is not"
    } else {
        "let restow read /metrics of every API server (name them with --api-server), or say what is encrypted with \
         --encrypted"
    };
    let text = format!(
        "every object is stored as {}, but under which encryption key is not proven: {why}; {advice}",
        progress.storage_version
    );
    Some(explained("Unverified", &text))
}
