//! One run of a plan.

use std::cell::Cell;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use restow_clock::{Instant, Simulation};
use restow_store::memory::MemoryStore;
use tokio::sync::watch;

use crate::actions;
use crate::connection::Connection;
use crate::controllers::control;
use crate::driver::drive;
use crate::layer::Layer;
use crate::ledger::Ledger;
use crate::oracle::Oracle;
use crate::plan::{COMPLETION_TIMEOUT, Event, GROUP, Plan, Scene};
use crate::process::{Clocks, Control};
use crate::report::{Report, broken};
use crate::trace::Trace;
use crate::users::act;
use crate::world::{LAG, World, lock};

/// The stack size of the thread of a run.
const STACK: usize = 64 << 20;

/// Runs a plan.
pub fn run(plan: &Plan) -> Report {
    // The future of a whole cluster is too large for the stack of a test.
    let played = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || played(plan));
        thread.map(std::thread::ScopedJoinHandle::join)
    });
    match played {
        Ok(Ok(report)) => report,
        Ok(Err(panic)) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            broken(text.unwrap_or_default())
        }
        Err(error) => broken(format!("no thread: {error}")),
    }
}

fn played(plan: &Plan) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return broken(format!("no runtime: {error}")),
    };
    runtime.block_on(async {
        let simulation = restow_clock::simulate(epoch(), plan.seed);
        let trace = Trace::begin();
        if let Err(error) = play(plan, &trace, &simulation).await {
            trace.violate("setup", format!("{error:#}"));
        }
        let seconds = trace.elapsed();
        let (steps, digest, violation) = trace.end();
        Report { violation, steps, digest, seconds }
    })
}

fn epoch() -> Timestamp {
    // 2026-01-01
    Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH)
}

async fn play(plan: &Plan, trace: &Trace, simulation: &Simulation) -> anyhow::Result<()> {
    let store = MemoryStore::default();
    let oracle = Oracle::new(plan.scene, GROUP, trace);
    let witness = oracle.clone();
    store.add_witness(Box::new(move |change| witness.judge(change)));
    let clocks = Clocks { simulation, skew: Cell::default() };
    let ledger = plan.setup.map(|_| Ledger::watch(plan, trace, &store));
    let skews = plan.setup.into_iter().flat_map(|setup| setup.skews);
    let mut world = World {
        trace: trace.clone(),
        layer: Layer::new(plan, trace, &store, ledger.clone()),
        oracle,
        ledger,
        replicas: skews.map(Control::skewed).collect(),
        scene: plan.scene,
        connections: (0..plan.servers())
            .map(|at| {
                let lags = plan.scene == Scene::Lagging && at == 1;
                Connection::new(store.clone(), if lags { LAG } else { Duration::ZERO })
            })
            .collect(),
        servers: Mutex::default(),
        began: Instant::now(),
        rotated: Mutex::default(),
        pass_began: Mutex::default(),
        moved: Mutex::default(),
    };
    for at in 0..plan.servers() {
        lock(&world.servers).push(None);
        world.start(plan, at).await;
    }
    world.prepare(plan).await?;
    world.began = Instant::now();
    let (kill, kills) = watch::channel(0);
    let driven = async {
        match plan.setup {
            Some(setup) => control(&world, plan, setup, &clocks).await,
            None => drive(&world, plan, kills).await,
        }
    };
    let driven = tokio::time::timeout(plan.quiet() + COMPLETION_TIMEOUT, driven);
    let beside = async {
        let actions = plan.events.iter().filter_map(|event| match event {
            Event::At(at, action) => {
                Some(actions::carry_out_at(&world, plan, Duration::from_millis(*at), *action, &clocks, &kill))
            }
            Event::Fault(_) => None,
        });
        futures::join!(
            futures::future::join_all(actions),
            act(plan, GROUP, trace, |server| world.layer.direct(server))
        );
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = trace.violated() => {}
        done = driven => if done.is_err() {
            trace.violate("L1", format!("not done {} s after the last fault", COMPLETION_TIMEOUT.as_secs()));
        },
        () = beside => {}
    }
    Ok(())
}
