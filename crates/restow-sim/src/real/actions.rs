//! Carries out the actions of a plan on a real control plane.

use std::time::Duration;

use restow_clock::Instant;
use restow_lab::Part;
use tokio::sync::watch;

use super::encryption::configuration;
use super::limits::MAX_DELAY;
use super::world::{World, lock, wait_for_encryption, wait_until};
use crate::plan::Action;

/// Carries out a action of a plan at its time.
pub(super) async fn carry_out_at(world: &World<'_>, at: Duration, action: Action, kill: &watch::Sender<u32>) {
    tokio::time::sleep_until(world.began + at).await;
    world.trace.step(&format!("{action:?}"));
    let moves = matches!(action, Action::Store(_) | Action::Rotate(_));
    lock(&world.moved).extend(moves.then(Instant::now));
    match carry_out(world, action, kill).await {
        Ok(()) => world.trace.step(&format!("{action:?} is over")),
        Err(error) => world.trace.violate("setup", format!("{action:?}: {error:#}")),
    }
    lock(&world.moved).extend(moves.then(Instant::now));
    world.over.send_modify(|over| *over += 1);
}

async fn carry_out(world: &World<'_>, action: Action, kill: &watch::Sender<u32>) -> anyhow::Result<()> {
    let part = |server: usize| Part::ApiServer(server.min(world.clients.len() - 1));
    match action {
        Action::Kill => kill.send_modify(|kills| *kills += 1),
        Action::Skew(_) => {}
        Action::Freeze(server, millis) => {
            world.cluster.pause(part(server))?;
            tokio::time::sleep(Duration::from_millis(millis).min(MAX_DELAY)).await;
            world.cluster.unpause(part(server))?;
        }
        Action::Restart(server, millis) => {
            // Another restart may be under way.
            if let Ok(_alone) = world.restarting[server].try_lock() {
                world.cluster.kill(part(server))?;
                tokio::time::sleep(Duration::from_millis(millis)).await;
                world.cluster.restart(part(server)).await?;
            }
        }
        Action::Store(version) => {
            // Whoever wants that tries until it is done.
            wait_until("the definition to be changed", async || world.define(version).await.is_ok()).await?;
        }
        Action::Rotate(server) => {
            let next = configuration(world.round + 1);
            world.cluster.set_encryption(server, &next)?;
            if !world.plan.seed.is_multiple_of(2) {
                let _alone = world.restarting[server].lock().await;
                world.cluster.restart(part(server)).await?;
            }
            wait_for_encryption(world.cluster, server, &next).await?;
            *lock(&world.rotated) += 1;
        }
        // The controllers do not run on real control planes.
        Action::RotateBack(_)
        | Action::Down(..)
        | Action::Pause(..)
        | Action::Migrate
        | Action::Abort
        | Action::Suspend(_) => {}
    }
    Ok(())
}
