//! Plans for the controllers.

use fastrand::Rng;

use super::{Deed, Event, Op, Plan, Scene, fault_of};

/// How the controllers and their cluster are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How many API servers there are.
    pub servers: usize,
    /// How many replicas the controllers have.
    pub replicas: usize,
    /// By how many seconds the wall clock of each replica is off.
    pub skews: [i64; 2],
    /// Whether the API servers serve StorageVersions.
    pub storage_versions: bool,
}

/// What the controllers ask for, as often as a fault hits it.
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

/// The plan of a seed.
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
        let deed = deed(rng, scene, setup);
        events.push(Event::At(at, deed));
        // Forth and back is the hardest to notice.
        if let Deed::Store(version) = deed
            && rng.u8(..3) > 0
        {
            let other = if version == "v1" { "v2" } else { "v1" };
            events.push(Event::At(at + rng.u64(20..5000), Deed::Store(other)));
        }
    }
    Plan { seed, scene, objects, page, users, setup: Some(setup), events, retired: false, misplaced: false }
}

/// Most happens while the first migration runs, or soon after it.
fn time(rng: &mut Rng) -> u64 {
    match rng.u8(..4) {
        0 => rng.u64(..6_000),
        1 | 2 => rng.u64(5_500..14_000),
        _ => rng.u64(..150_000),
    }
}

/// Every server takes each key up, one after the other.
fn rotate(rng: &mut Rng, setup: Setup, events: &mut Vec<Event>) {
    let mut at = time(rng);
    for back in [false, true].into_iter().take(rng.usize(1..3)) {
        let first = rng.usize(..setup.servers);
        for nth in 0..setup.servers {
            let server = (first + nth) % setup.servers;
            let deed = if back { Deed::RotateBack(server) } else { Deed::Rotate(server) };
            events.push(Event::At(at, deed));
            at += rng.u64(20..5_000);
        }
        // Back within one look of the trigger, or after some.
        at += if rng.bool() { rng.u64(..2_000) } else { rng.u64(..100_000) };
    }
}

fn deed(rng: &mut Rng, scene: Scene, setup: Setup) -> Deed {
    let (server, replica) = (rng.usize(..setup.servers), rng.usize(..setup.replicas));
    match rng.u8(..16) {
        0..3 => Deed::Down(replica, rng.u64(100..20_000)),
        // Longer than the heartbeat of a state lasts.
        3 => Deed::Down(replica, rng.u64(600_000..800_000)),
        4..6 => Deed::Pause(replica, rng.u64(1_000..60_000)),
        6 => Deed::Skew(rng.i64(-20..20)),
        7 => Deed::Restart(server, rng.u64(100..20_000)),
        8 => Deed::Freeze(server, rng.u64(1_000..60_000)),
        9 => Deed::Migrate,
        10 => Deed::Abort,
        11 => Deed::Suspend(rng.u64(1_000..60_000)),
        _ if scene == Scene::Rotation => Deed::Restart(server, rng.u64(100..20_000)),
        _ => Deed::Store(if rng.bool() { "v1" } else { "v2" }),
    }
}
