//! Carries out the actions of a plan on the simulated cluster.

use std::time::Duration;

use jiff::SignedDuration;
use restow_clock::Instant;
use tokio::sync::watch;

use crate::controllers::act_on_migrations;
use crate::plan::{Action, Plan};
use crate::process::Clocks;
use crate::world::{World, lock};

/// Carries out an action of a plan at its time.
pub(crate) async fn carry_out_at(
    world: &World,
    plan: &Plan,
    at: Duration,
    action: Action,
    clocks: &Clocks<'_>,
    kill: &watch::Sender<u32>,
) {
    tokio::time::sleep_until(world.began + at).await;
    world.trace.step(&format!("{action:?}"));
    let moves = matches!(action, Action::Store(_) | Action::Rotate(_));
    lock(&world.moved).extend(moves.then(Instant::now));
    match action {
        Action::Kill => kill.send_modify(|kills| *kills += 1),
        Action::Skew(seconds) => clocks.skew(SignedDuration::from_secs(seconds)),
        Action::Freeze(server, millis) => {
            world.connections[server].block(true);
            tokio::time::sleep(Duration::from_millis(millis)).await;
            world.connections[server].block(false);
        }
        Action::Restart(server, millis) => {
            let running = lock(&world.servers)[server].take();
            // Another restart may be running.
            if let Some(running) = running {
                world.layer.set(server, None);
                drop(running);
                if let Some(ledger) = &world.ledger {
                    ledger.encrypts(server, None);
                }
                tokio::time::sleep(Duration::from_millis(millis)).await;
                world.start(plan, server).await;
            }
        }
        Action::Store(version) => {
            // The user retries until it is done.
            for _ in 0..100 {
                if let Some(client) = world.layer.direct(0)
                    && world.define(plan, &client, version).await.is_ok()
                {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        Action::Rotate(server) => {
            lock(&world.rotated).insert(server);
            world.encrypt(server, true);
        }
        Action::RotateBack(server) => {
            lock(&world.rotated).remove(&server);
            world.encrypt(server, false);
        }
        Action::Down(replica, millis) => {
            world.replicas[replica].down(true);
            tokio::time::sleep(Duration::from_millis(millis)).await;
            world.replicas[replica].down(false);
        }
        Action::Pause(replica, millis) => {
            world.replicas[replica].pause(true);
            tokio::time::sleep(Duration::from_millis(millis)).await;
            world.replicas[replica].pause(false);
        }
        Action::Migrate | Action::Abort | Action::Suspend(_) => act_on_migrations(world, plan, action).await,
    }
    lock(&world.moved).extend(moves.then(Instant::now));
    world.trace.step(&format!("{action:?} is over"));
}
