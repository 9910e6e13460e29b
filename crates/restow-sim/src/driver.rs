//! Runs the engine as the command line does, and restarts it as a user would.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use restow_clock::Instant;
use restow_core::agreement::encryption::KeyRequirement;
use restow_core::agreement::version::Disagreement;
use restow_core::resource::inventory::{Resource, find};
use restow_core::rewrite::outcome::{Outcome, REFUSAL_TIMEOUT};
use restow_core::rewrite::pace::Preset;
use restow_core::rewrite::progress::{Phase, Progress, Quarantined};
use restow_lease::Stop;
use restow_migrate::client::Throttle;
use restow_migrate::cluster::{Cluster, Trust};
use restow_migrate::list::Waiting;
use restow_migrate::migration::{Journal, ListMode, Migration, MigrationError, MigrationSettings, Observer};
use restow_migrate::prune::prune_stored_versions;
use restow_migrate::rewrite::WriteOptions;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::ledger::is_connection;
use crate::plan::{Plan, Scene};
use crate::trace::Trace;
use crate::world::World;

/// What a killed process leaves behind.
#[derive(Default)]
struct Saved {
    progress: Option<Progress>,
    left: Vec<Quarantined>,
}

/// How one process ended.
pub(crate) enum End {
    /// Nothing is left to do.
    Done,
    /// The user starts it again, possibly with `--resume`.
    Again { resume: bool },
}

/// Writes the progress into the trace.
struct TracingObserver<'a>(&'a World);

impl Waiting for TracingObserver<'_> {
    fn waiting(&self, why: &str, wait: Duration) {
        self.0.trace.step(&format!("restow waits {wait:?}: {why}"));
    }
}

impl Observer for TracingObserver<'_> {
    fn settling(&self, wait: Duration) {
        self.0.trace.step(&format!("restow lets the definition settle for {wait:?}"));
    }
    fn pass(&self, progress: &Progress) {
        self.0.trace.step(&format!("restow begins a pass: {:?}", progress.phase));
        self.0.pass(progress);
    }
    fn decided(&self, _: &Outcome) {}
    fn page(&self, _: &Progress) {}
}

struct SavedJournal<'a> {
    world: &'a World,
    saved: &'a Mutex<Saved>,
}

impl Journal for SavedJournal<'_> {
    async fn save(&mut self, progress: &Progress, left: &[Quarantined]) -> io::Result<()> {
        if progress.verified {
            self.world.verified(progress);
        }
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.progress = Some(progress.clone());
        saved.left.extend_from_slice(left);
        Ok(())
    }
}

/// Runs restow until it is done. Each kill restarts it.
pub(crate) async fn drive(world: &World, plan: &Plan, kills: watch::Receiver<u32>) {
    let saved = Mutex::new(Saved::default());
    let run = async |resume, since| process(world, plan, &saved, resume, since).await;
    until_done(&world.trace, kills, run).await;
}

/// Runs one process after the other until one is done. A kill drops the process, and the next one resumes. Each process
/// gets whether it resumes, and when its run started.
pub(crate) async fn until_done(
    trace: &Trace,
    mut kills: watch::Receiver<u32>,
    mut process: impl AsyncFnMut(bool, Instant) -> End,
) {
    let mut resume = false;
    let mut since = Instant::now();
    loop {
        if !resume {
            since = Instant::now();
        }
        let end = tokio::select! {
            biased;
            _ = kills.changed() => None,
            end = process(resume, since) => Some(end),
        };
        match end {
            Some(End::Done) => return,
            Some(End::Again { resume: again }) => resume = again,
            None => {
                trace.step("restow is killed");
                resume = true;
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

async fn process(world: &World, plan: &Plan, saved: &Mutex<Saved>, resume: bool, since: Instant) -> End {
    let layer = world.layer.clone();
    let trust = match plan.scene {
        Scene::Lagging => Trust::Single,
        Scene::Keys => {
            let address = |name: &str| format!("https://{name}").parse();
            Trust::Named(["a", "b"].iter().filter_map(|name| address(name).ok()).collect())
        }
        _ => Trust::Members,
    };
    let cluster =
        Cluster::over("https://a", trust, move |url| layer.client(usize::from(url.contains("//b"))));
    let name = if plan.scene.encrypts() { "secrets" } else { "boats.sim.example" };
    let inventory = match cluster.inventory(false).await {
        Ok(inventory) => inventory,
        Err(error) => {
            world.trace.step(&format!("restow cannot begin: {error}"));
            return End::Again { resume };
        }
    };
    let Ok(resource) = find(&inventory.resources, name) else {
        world.trace.step("restow finds no such resource");
        return End::Again { resume };
    };
    migrate(world, plan, &cluster, resource, saved, resume, since).await
}

async fn migrate(
    world: &World,
    plan: &Plan,
    cluster: &Cluster,
    resource: &Resource,
    saved: &Mutex<Saved>,
    resume: bool,
    since: Instant,
) -> End {
    let throttle = Throttle::new(Preset::Fast.bounds());
    let stop = Stop::from(CancellationToken::new());
    let view = TracingObserver(world);
    let migration = Migration {
        cluster,
        resource,
        settings: MigrationSettings {
            page_size: plan.page,
            list: if plan.seed.is_multiple_of(4) { ListMode::Streaming } else { ListMode::Chunked },
            verify: true,
            write_options: WriteOptions { repair_managed_fields: plan.retired, ..WriteOptions::default() },
            encrypted: match plan.scene {
                Scene::Keys => KeyRequirement::Declared,
                Scene::Single => KeyRequirement::Reported,
                // Servers of one process have no addresses to ask for metrics at.
                _ => KeyRequirement::Nothing,
            },
        },
        throttle: &throttle,
        observer: &view,
        stop: &stop,
    };
    let mut files = SavedJournal { world, saved };
    let hash = resource.hash.as_deref().unwrap_or_default();
    let earlier = {
        let mut saved = saved.lock().unwrap_or_else(PoisonError::into_inner);
        let unfinished =
            |progress: &Progress| progress.phase != Phase::Done && progress.storage_version_hash == hash;
        let earlier = saved.progress.take().filter(|progress| resume && unfinished(progress));
        if earlier.is_none() {
            saved.left.clear();
        }
        earlier
    };
    let fresh =
        || Progress::new(resource.name.clone(), resource.storage_version_name(), hash, restow_clock::now());
    let mut progress = earlier.unwrap_or_else(fresh);
    let result = async {
        if progress.counts.listed == 0 {
            progress = migration.begin().await?;
        }
        migration.run(&mut progress, &mut files).await
    };
    let result = result.await;
    match result {
        Ok(()) => finish(world, plan, cluster, &progress, saved).await,
        Err(failure) => failed(world, plan, &failure, since),
    }
}

/// Judges a run that started at this time and ended early.
fn failed(world: &World, plan: &Plan, failure: &MigrationError, since: Instant) -> End {
    let cause = std::error::Error::source(failure).map(|cause| format!(": {cause}")).unwrap_or_default();
    let told = format!("{failure}{cause}");
    world.trace.step(&format!("restow fails: {told}"));
    match failure {
        MigrationError::Disagreement(_) | MigrationError::Restless(_) if plan.moves() => {
            End::Again { resume: false }
        }
        // A user without permission to read identity Leases gets this error.
        MigrationError::Disagreement(Disagreement::UnknownMembers(_))
            if world.layer.request_log().forbidden =>
        {
            End::Again { resume: false }
        }
        MigrationError::Moved(_) if world.has_moved_since(since) => End::Again { resume: false },
        _ => {
            let invariant = if is_connection(&told) { "L3" } else { "L1" };
            world.trace.violate(invariant, format!("a passing fault ended a healthy run: {told}"));
            End::Again { resume: true }
        }
    }
}

/// Judges a run that finished.
async fn finish(
    world: &World,
    plan: &Plan,
    cluster: &Cluster,
    progress: &Progress,
    saved: &Mutex<Saved>,
) -> End {
    let left = saved.lock().unwrap_or_else(PoisonError::into_inner).left.clone();
    world.trace.step(&format!("restow ends: verified {}, {} left", progress.verified, left.len()));
    for object in &left {
        if !plan.is_misplaced(&object.name) && !world.layer.request_log().is_to_blame(&object.name) {
            let (name, message) = (&object.name, &object.message);
            let what = format!(
                "{name} is quarantined, but its writes have not failed for {REFUSAL_TIMEOUT:?}: {message}"
            );
            world.trace.violate("L2", what);
        }
    }
    if !left.is_empty() {
        let refused = left.iter().all(|object| plan.is_refused(&object.name));
        return if refused { settled(world, plan, &left).await } else { End::Again { resume: false } };
    }
    if !progress.verified {
        if progress.unproven.is_none() {
            world.trace.violate("L1", "a run ended without objects left, and not verified".to_owned());
        }
        return End::Again { resume: false };
    }
    if !plan.scene.encrypts() {
        match prune_stored_versions(cluster.server(), progress).await {
            Ok(pruned) => world.trace.step(&format!("restow pruned {pruned:?}")),
            Err(error) => {
                world.trace.step(&format!("restow did not prune: {error}"));
                return End::Again { resume: false };
            }
        }
    }
    settled(world, plan, &left).await
}

/// Waits until nothing more happens, and returns whether something is left to do.
async fn settled(world: &World, plan: &Plan, left: &[Quarantined]) -> End {
    world.at_rest(plan).await;
    let wanted = world.wanted(plan);
    let stale = world.oracle.stale(&wanted);
    let named = |name: &String| left.iter().any(|object| object.name == *name);
    if stale.iter().all(named) {
        return End::Done;
    }
    world.trace.step(&format!("not as {wanted}: {}", stale.join(" ")));
    End::Again { resume: false }
}
