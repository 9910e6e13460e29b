//! Draws plans for the controllers.

use fastrand::Rng;

use super::contents::Plan;
use super::event::{Action, Event, Op};
use super::fault::fault_of;
use super::scene::{Scene, Setup};

/// The requests of the controllers, weighted by how often a fault affects them.
const OPS: [Op; 16] = [
    Op::List,
    Op::List,
    Op::Write,
    Op::Write,
    Op::Read,
    Op::Look,
    Op::Discover,
    Op::Metrics,
    Op::Prune,
    Op::State,
    Op::State,
    Op::Migration,
    Op::Migration,
    Op::Migration,
    Op::Lease,
    Op::Event,
];

/// Draws the plan of a seed.
pub(super) fn plan(seed: u64, scene: Scene, rng: &mut Rng) -> Plan {
    let setup = Setup {
        servers: rng.usize(1..3),
        replicas: rng.usize(1..3),
        skews: if rng.bool() { [0; 2] } else { [rng.i64(-30..30), rng.i64(-30..30)] },
        storage_versions: rng.bool(),
    };
    let (objects, page, users) = (rng.usize(4..13), rng.u32(2..6), rng.u32(0..40));
    let faults = 0..rng.u32(0..5);
    let mut events: Vec<Event> = faults
        .map(|_| {
            let op = OPS[rng.usize(..OPS.len())];
            Event::Fault(fault_of(rng, op))
        })
        .collect();
    if scene == Scene::Rotation {
        rotate(rng, setup, &mut events);
    }
    for _ in 0..rng.u32(0..5) {
        let at = time(rng);
        let action = action(rng, scene, setup);
        events.push(Event::At(at, action));
        // A change that is reverted is the hardest to notice.
        if let Action::Store(version) = action
            && rng.u8(..3) > 0
        {
            let other = if version == "v1" { "v2" } else { "v1" };
            events.push(Event::At(at + rng.u64(20..5000), Action::Store(other)));
        }
    }
    Plan { seed, scene, objects, page, users, setup: Some(setup), events, retired: false, misplaced: false }
}

/// Draws a time: mostly while the first migration runs, or soon after it.
fn time(rng: &mut Rng) -> u64 {
    match rng.u8(..4) {
        0 => rng.u64(..6_000),
        1 | 2 => rng.u64(5_500..14_000),
        _ => rng.u64(..150_000),
    }
}

/// Every server changes its key, one after the other.
fn rotate(rng: &mut Rng, setup: Setup, events: &mut Vec<Event>) {
    let mut at = time(rng);
    for back in [false, true].into_iter().take(rng.usize(1..3)) {
        let first = rng.usize(..setup.servers);
        for nth in 0..setup.servers {
            let server = (first + nth) % setup.servers;
            let action = if back { Action::RotateBack(server) } else { Action::Rotate(server) };
            events.push(Event::At(at, action));
            at += rng.u64(20..5_000);
        }
        // Reverted between two polls of the trigger, or later.
        at += if rng.bool() { rng.u64(..2_000) } else { rng.u64(..100_000) };
    }
}

fn action(rng: &mut Rng, scene: Scene, setup: Setup) -> Action {
    let (server, replica) = (rng.usize(..setup.servers), rng.usize(..setup.replicas));
    match rng.u8(..16) {
        0..3 => Action::Down(replica, rng.u64(100..20_000)),
        // Longer than a heartbeat is valid.
        3 => Action::Down(replica, rng.u64(600_000..800_000)),
        4..6 => Action::Pause(replica, rng.u64(1_000..60_000)),
        6 => Action::Skew(rng.i64(-20..20)),
        7 => Action::Restart(server, rng.u64(100..20_000)),
        8 => Action::Freeze(server, rng.u64(1_000..60_000)),
        9 => Action::Migrate,
        10 => Action::Abort,
        11 => Action::Suspend(rng.u64(1_000..60_000)),
        _ if scene == Scene::Rotation => Action::Restart(server, rng.u64(100..20_000)),
        _ => Action::Store(if rng.bool() { "v1" } else { "v2" }),
    }
}
