//! The StorageVersion protocol, model-checked: every order of steps of three API servers, collectors, users, the trigger,
//! the migrator and the pruner, with crashes, pauses past a Lease, lost answers and repeated requests.
//!
//! The model is the environment only. Every decision in it is taken by restow-core's own functions: what a server
//! registers, what a collector drops, what counts as agreement, what a look of the trigger leads to, what a pass proves,
//! what may be pruned, what passes a closed gate. So a wrong rule there is found here.
//!
//! # What is checked
//!
//! In every state that can be reached: S1, S6, S7 and S8 ([`properties`]). From every such state: when nothing goes wrong
//! any more, live servers are registered and write, entries of others go, servers of one version agree, and the
//! migration ends, refined and pruned ([`liveness`]). And each bug of [`bug`], built in, is caught.
//!
//! # What is bounded
//!
//! What can happen is cut into scenes ([`SCENES`] says how much happens in each). In a coarse scene a registration and a
//! collection are one step each; the fine ones show that requests in between change nothing, because each is conditioned
//! on what was read. `RESTOW_MODEL_MORE=1` gives each scene one more fault, for minutes rather than seconds;
//! `--nocapture` tells how many states there were.
//!
//! # What is taken for granted
//!
//! - A write that has passed the gate is stored, or never will be, before the Lease of its server expires: in the last
//!   third of the Lease's duration, 20 minutes of an hour. A process that stands still between its gate and its store for
//!   longer than that writes in a version that nobody counts with; only a store that checks the Lease in the same
//!   transaction could prevent that. Without this the model finds S7 violated, see [`LIMITS`].
//! - What a process has sent to the store before it died is stored, or never will be, before its next life has
//!   registered.
//! - Two changes of the common version are told apart by their times, which are whole seconds.
//! - A server of a custom resource reads the definition after it has become a member.
//!
//! A look at the agreement is one step here. In truth members are read before the StorageVersion, which shows no less:
//! who came in between has registered or cannot write yet.

#![allow(clippy::unwrap_used, clippy::panic)]

mod bug;
mod collecting;
mod likeness;
mod liveness;
mod migrating;
mod migration_rules;
mod properties;
mod protocol;
mod rules;
mod scene;
mod servers;
mod state;

use std::collections::BTreeSet;

use stateright::{Checker as _, HasDiscoveries, Model as _};

use bug::Bug;
use liveness::Graph;
use properties::{MOVES, S1, S6, S7, S8};
use protocol::Protocol;
use scene::{
    CUSTOM, CUSTOM_DISTURBED, CUSTOM_TRIO, DISTURBED, FORTH_AND_BACK, FOUNDING, INTERRUPTED, MEMBERS,
    OVERTURNED, PAIR, ROLLOUT, SCENES, Scene,
};

/// The scene, or with a variable set a larger one.
fn bounded(scene: &Scene) -> Scene {
    let more = u8::from(std::env::var_os("RESTOW_MODEL_MORE").is_some());
    let mut scene = *scene;
    scene.budget.faults += more;
    scene
}

#[test]
fn the_protocol_is_safe_in_every_scene() {
    let mut moved = false;
    for scene in SCENES.map(bounded) {
        let checker = Protocol { scene, bug: None }.checker().spawn_bfs().join();
        println!("{}: {} states", scene.name, checker.unique_state_count());
        for property in [S1, S6, S7, S8] {
            checker.assert_no_discovery(property);
        }
        moved |= scene.migrator && checker.discovery(MOVES).is_some();
    }
    assert!(moved, "no scene shows a migration");
}

#[test]
fn every_scene_completes_once_faults_stop() {
    for scene in [FOUNDING, PAIR, ROLLOUT, DISTURBED, INTERRUPTED, CUSTOM, CUSTOM_DISTURBED]
        .map(|scene| bounded(&scene))
    {
        let model = Protocol { scene, bug: None };
        let graph = Graph::of(&model);
        println!("{}: {} states", scene.name, graph.states.len());
        if let Some(restless) = graph.restless(&model) {
            panic!("{}: no rest after {:#?}", scene.name, graph.path(restless));
        }
    }
}

#[test]
fn each_bug_is_caught() {
    for (bug, scene, property) in [
        (Bug::UnreadLeaseIsDeath, MEMBERS, S8),
        (Bug::UnconditionalDelete, FOUNDING, S8),
        (Bug::UnconditionalCollection, MEMBERS, S8),
        (Bug::MembersBeforeEntries, MEMBERS, S8),
        (Bug::RegisteredBeforeMember, FOUNDING, S8),
        (Bug::UnconditionalRegistration, FOUNDING, S8),
        (Bug::NoTraceOfALife, MEMBERS, S8),
        (Bug::ServedBeforeRegistered, FOUNDING, S8),
        (Bug::GateOutlivesTenure, MEMBERS, S8),
        (Bug::GateOutlivesTenure, PAIR, S6),
        (Bug::CustomNeverRegistered, CUSTOM_TRIO, S6),
        (Bug::Undrained, CUSTOM_TRIO, S7),
        (Bug::EnabledUnasked, CUSTOM, S1),
        (Bug::OneServersWord, ROLLOUT, S1),
        (Bug::WrittenSinceSkipped, ROLLOUT, S1),
        (Bug::CurrentRefined, OVERTURNED, S1),
        (Bug::NeverVerified, CUSTOM, S1),
        (Bug::ShiftIgnored, CUSTOM, S1),
        (Bug::BetweenLooksUnasked, FORTH_AND_BACK, S1),
        (Bug::PruneUnguarded, CUSTOM, S1),
    ] {
        caught(bug, scene, property);
    }
}

/// What the protocol cannot prevent, and is taken for granted not to happen.
const LIMITS: [(Bug, Scene, &str); 2] =
    [(Bug::WriteOutlivesLease, PAIR, S7), (Bug::WriteOutlivesLife, PAIR, S7)];

#[test]
fn each_documented_limit_is_a_real_one() {
    for (limit, scene, property) in LIMITS {
        caught(limit, scene, property);
    }
}

#[test]
fn a_bug_that_prevents_completion_is_caught() {
    for (bug, scene) in [
        (Bug::NoCollector, PAIR),
        (Bug::ConflictIsFinal, FOUNDING),
        (Bug::FailureIsFinal, DISTURBED),
        (Bug::StateWrittenLast, INTERRUPTED),
        (Bug::BetweenLooksUnasked, FORTH_AND_BACK),
    ] {
        let model = Protocol { scene, bug: Some(bug) };
        let graph = Graph::of(&model);
        let restless = graph.restless(&model);
        assert!(
            restless.is_some(),
            "{bug:?} is not caught in {}: all {} states come to rest",
            scene.name,
            graph.states.len()
        );
        println!("{bug:?}: caught after {} steps", restless.map_or(0, |index| graph.path(index).len()));
    }
}

#[track_caller]
fn caught(bug: Bug, scene: Scene, property: &'static str) {
    let found = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = Protocol { scene, bug: Some(bug) }.checker().finish_when(found).spawn_bfs().join();
    let states = checker.unique_state_count();
    match checker.discovery(property) {
        Some(path) => println!("{bug:?}: caught after {} steps, {states} states", path.into_actions().len()),
        None => panic!("{bug:?} is not caught in {} by \"{property}\" in {states} states", scene.name),
    }
}
