//! One run of a plan on a real control plane.

use std::path::Path;
use std::time::Duration;

use restow_lab::Cluster;
use tokio::sync::watch;

use super::actions;
use super::limits::COMPLETION_TIMEOUT;
use super::process::drive;
use super::world::World;
use crate::plan::{Event, Plan, QUIET};
use crate::report::{Report, broken};
use crate::trace::Trace;
use crate::users::act;

/// Runs a plan on a control plane, in the round of its keys.
pub(super) fn run(plan: &Plan, cluster: &Cluster, restow: &Path, round: usize) -> Report {
    fastrand::seed(plan.seed);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return broken(format!("no runtime: {error}")),
    };
    runtime.block_on(async {
        let trace = Trace::begin();
        let played = async {
            let world = World::prepare(plan, cluster, restow, round, &trace).await?;
            play(&world).await;
            world.clear().await
        };
        if let Err(error) = played.await {
            trace.violate("setup", format!("{error:#}"));
        }
        let seconds = trace.elapsed();
        let (steps, digest, violation) = trace.end();
        Report { violation, steps, digest, seconds }
    })
}

async fn play(world: &World<'_>) {
    let (kill, kills) = watch::channel(0);
    let driven = tokio::time::timeout(QUIET + COMPLETION_TIMEOUT, drive(world, kills));
    let beside = async {
        let actions = world.plan.events.iter().filter_map(|event| match event {
            Event::At(at, action) => {
                Some(actions::carry_out_at(world, Duration::from_millis(*at), *action, &kill))
            }
            Event::Fault(_) => None,
        });
        let direct = |server: usize| world.clients.get(server.min(world.clients.len() - 1)).cloned();
        let users = act(world.plan, &world.group, &world.trace, direct);
        futures::join!(futures::future::join_all(actions), users);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = world.trace.violated() => {}
        done = driven => if done.is_err() {
            let what = format!("not done {} s after the last fault", COMPLETION_TIMEOUT.as_secs());
            world.trace.violate("L1", what);
        },
        () = beside => {}
    }
}
