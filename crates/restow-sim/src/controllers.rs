//! Runs the controllers in one or two processes, and checks what they have to achieve.

use std::time::Duration;

use restow_api::Reason;
use restow_controller::run::{Options, run};
use restow_controller::settings::{Backend, ControllerSettings, Controllers};
use restow_core::agreement::encryption::{KeyRequirement, Pattern};
use restow_core::resource::name::GroupResource;
use restow_core::rewrite::pace::Preset;
use restow_lease::election::Election;
use restow_migrate::cluster::{Cluster, Trust};
use restow_migrate::migration::{self, ListMode};
use restow_migrate::rewrite::WriteOptions;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::ledger::{Ledger, failure, is_finished, left};
use crate::objects::send;
use crate::plan::{Action, Effect, Event, Plan, Setup};
use crate::process::{Clocks, process};
use crate::world::World;

/// The poll interval of the trigger.
const POLL: Duration = Duration::from_secs(60);
/// How often the simulation checks whether the controllers are done.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// How long the controllers may take to catch up after faults that delayed them.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(300);
/// How long nothing more may happen afterwards: at least one poll.
const REST: Duration = Duration::from_secs(75);
/// The same in some plans: longer than a heartbeat is valid.
const LONG_REST: Duration = Duration::from_secs(660);
/// The path of migrations.
const MIGRATIONS: &str = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";

/// Runs the controllers until they are done.
pub(crate) async fn control(world: &World, plan: &Plan, setup: Setup, clocks: &Clocks<'_>) {
    let replicas = (0..setup.replicas).map(|at| replica(world, plan, setup, at, clocks));
    tokio::select! {
        biased;
        _ = futures::future::join_all(replicas) => {}
        () = done(world, plan) => {}
    }
}

/// One replica, which is restarted whenever it is killed.
async fn replica(world: &World, plan: &Plan, setup: Setup, at: usize, clocks: &Clocks<'_>) {
    let control = &world.replicas[at];
    let mut life = 0;
    loop {
        life += 1;
        let name = format!("replica-{at}-{life}");
        let options = options(world, plan, setup, at, &name);
        process(control, clocks, run(options, CancellationToken::new())).await;
        world.trace.step(&format!("{name} is killed"));
        control.up().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn options(world: &World, plan: &Plan, setup: Setup, at: usize, name: &str) -> Options {
    let (layer, identity) = (world.layer.clone(), name.to_owned());
    let url = ["https://a", "https://b"][at % setup.servers];
    let cluster = Cluster::over(url, trust(setup), move |url| {
        layer.replica(identity.clone(), usize::from(url.contains("//b")))
    });
    let election = Election {
        client: cluster.server().client().clone(),
        namespace: "default".to_owned(),
        name: restow_api::MANAGER.to_owned(),
        identity: name.to_owned(),
        duration: Duration::from_secs(15),
        renew_every: Duration::from_secs(5),
    };
    let encrypts = plan.scene.encrypts();
    Options {
        cluster,
        controllers: Controllers {
            migrator: true,
            trigger: true,
            encryption: encrypts,
            pruner: true,
            conversion: false,
        },
        settings: settings(plan),
        bounds: Preset::Fast.bounds(),
        identity: name.to_owned(),
        election: Some(election),
        listener: None,
    }
}

/// Servers in one process have no addresses, so two of them are named.
fn trust(setup: Setup) -> Trust {
    let address = |name: &&str| format!("https://{name}").parse().ok();
    match setup.servers {
        1 => Trust::Members,
        _ => Trust::Named(["a", "b"].iter().filter_map(address).collect()),
    }
}

fn settings(plan: &Plan) -> ControllerSettings {
    let watched = if plan.scene.encrypts() {
        GroupResource::new("", "secrets")
    } else {
        GroupResource::new("sim.example", "boats")
    };
    ControllerSettings {
        migration: migration::MigrationSettings {
            page_size: plan.page,
            list: ListMode::Chunked,
            verify: true,
            write_options: WriteOptions { dry_run: false, repair_managed_fields: true },
            encrypted: KeyRequirement::Reported,
        },
        concurrent_migrations: 1,
        poll: POLL,
        encryption_resources: Some(if plan.scene.encrypts() {
            vec![Pattern::new(&watched.to_string())]
        } else {
            Vec::new()
        }),
        resources: Some(vec![watched]),
        backend: Backend::Restow,
        adopt: false,
        only_conversion: None,
    }
}

/// Waits until every object is stored as wanted, the StorageState and the CRD show it, and that stays so; or until all
/// remaining objects are refused forever and quarantined.
async fn done(world: &World, plan: &Plan) {
    let Some(ledger) = &world.ledger else { return };
    world.at_rest(plan).await;
    // A key that was changed and reverted is noticed at the next poll.
    tokio::time::sleep(POLL + CHECK_EVERY).await;
    if aborts(plan) || delays(plan) {
        // Nothing shows whether the trigger has noticed everything.
        tokio::time::sleep_until(world.began + plan.quiet() + CATCH_UP_TIMEOUT).await;
    }
    while !is_done(world, plan, ledger).await {
        tokio::time::sleep(CHECK_EVERY).await;
    }
    let (created, wanted) = (ledger.created(), world.wanted(plan));
    world.trace.step(&format!("all is stored as {wanted}, and nothing more may happen"));
    tokio::time::sleep(if plan.seed.is_multiple_of(8) { LONG_REST } else { REST }).await;
    if ledger.created() != created {
        let what =
            format!("{} migrations were created although nothing had changed", ledger.created() - created);
        world.trace.violate("S9", what);
    }
    if !is_done(world, plan, ledger).await {
        world.trace.violate("L1", "what was done is no longer, although nothing has changed".to_owned());
    }
}

async fn is_done(world: &World, plan: &Plan, ledger: &Ledger) -> bool {
    let wanted = world.wanted(plan);
    let stale = world.oracle.stale(&wanted);
    let migrations = ledger.migrations();
    let mut named = Vec::new();
    for (name, migration) in &migrations {
        let left = left(migration);
        for object in left.iter().filter(|object| !world.layer.request_log().was_to_blame(object)) {
            let what = format!("{name} quarantines {object}, which was never refused");
            world.trace.violate("L2", what);
        }
        let quarantined = failure(migration).is_some_and(|reason| reason == Reason::Quarantined.as_str());
        if quarantined && !left.iter().all(|object| plan.is_refused(object)) {
            retry(world, name).await;
            return false;
        }
        named.extend(left);
    }
    let busy = migrations.values().any(|migration| !is_finished(migration));
    let refused = !named.is_empty() && stale.iter().all(|object| named.contains(object));
    // A user who deletes a migration does not want it: no other one is created until something changes.
    let settled = stale.is_empty() && ledger.is_refined(&wanted) && ledger.is_pruned(&wanted);
    !busy && (settled || refused || aborts(plan))
}

/// Whether a user deletes running migrations.
fn aborts(plan: &Plan) -> bool {
    plan.events.iter().any(|event| matches!(event, Event::At(_, Action::Abort)))
}

/// Whether an answer may be later than the next poll.
fn delays(plan: &Plan) -> bool {
    let late =
        |event: &Event| matches!(event, Event::Fault(fault) if matches!(fault.effect, Effect::Late(_)));
    plan.events.iter().any(late)
}

/// A user retries the quarantined objects.
async fn retry(world: &World, name: &str) {
    world.trace.step(&format!("a user retries {name}"));
    let patch = json!({"metadata": {"annotations": {restow_api::RETRY: "yes"}}});
    if let Some(client) = world.layer.direct(0) {
        let _ = send(&client, "PATCH", &format!("{MIGRATIONS}/{name}"), &patch).await;
    }
}

/// Carries out what users do to migrations.
pub(crate) async fn act_on_migrations(world: &World, plan: &Plan, action: Action) {
    let Some(ledger) = &world.ledger else { return };
    let Some(client) = world.layer.direct(0) else { return };
    let under_way: Vec<String> = ledger
        .migrations()
        .into_iter()
        .filter(|(_, migration)| !is_finished(migration))
        .map(|(name, _)| name)
        .collect();
    match action {
        Action::Migrate => {
            let (group, version, resource) =
                if plan.scene.encrypts() { ("", "v1", "secrets") } else { ("sim.example", "v1", "boats") };
            let migration = json!({
                "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
                "metadata": {"generateName": "by-hand-"},
                "spec": {"resource": {"group": group, "version": version, "resource": resource}},
            });
            let _ = send(&client, "POST", MIGRATIONS, &migration).await;
        }
        Action::Abort => {
            for name in under_way {
                let _ = send(&client, "DELETE", &format!("{MIGRATIONS}/{name}"), &json!({})).await;
            }
        }
        Action::Suspend(millis) => {
            let suspend = |suspend: bool| json!({"spec": {"suspend": suspend}});
            for name in &under_way {
                let _ = send(&client, "PATCH", &format!("{MIGRATIONS}/{name}"), &suspend(true)).await;
            }
            tokio::time::sleep(Duration::from_millis(millis)).await;
            // A migration that replaces a suspended one is suspended too.
            let suspended = ledger.migrations().into_iter().filter(|(_, one)| one["spec"]["suspend"] == true);
            for (name, _) in suspended {
                resume(world, &format!("{MIGRATIONS}/{name}"), &suspend(false)).await;
            }
        }
        _ => {}
    }
}

/// The user retries until the migration is resumed or gone.
async fn resume(world: &World, path: &str, patch: &serde_json::Value) {
    for _ in 0..100 {
        if let Some(client) = world.layer.direct(0) {
            match send(&client, "PATCH", path, patch).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                Err(_) => {}
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
