//! Draws a plan from a seed.

use fastrand::Rng;

use super::contents::Plan;
use super::event::{Action, Event};
use super::fault::fault;
use super::scene::Scene;
use super::{controllers, extras};

impl Plan {
    /// Draws the plan of a seed, in this scene or in one that the seed chooses.
    pub fn new(seed: u64, scene: Option<Scene>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let own = Scene::ALL[rng.usize(..Scene::ALL.len())];
        let scene = scene.unwrap_or(own);
        if Scene::CONTROLLERS.contains(&scene) {
            return controllers::plan(seed, scene, &mut rng);
        }
        let objects = rng.usize(4..13);
        let page = rng.u32(2..6);
        let users = rng.u32(0..40);
        let mut events: Vec<Event> =
            (0..rng.u32(0..5)).map(|_| Event::Fault(fault(&mut rng, scene))).collect();
        if scene == Scene::Keys {
            let (first, second) = (rng.u64(..4000), rng.u64(..15_000));
            let which = rng.usize(..2);
            events.push(Event::At(first, Action::Rotate(which)));
            events.push(Event::At(second, Action::Rotate(1 - which)));
        }
        for _ in 0..rng.u32(0..4) {
            // Most steps of a run happen right after its CRD has settled.
            let at = if rng.bool() { rng.u64(5_800..8_000) } else { rng.u64(..40_000) };
            let action = action(&mut rng, scene);
            events.push(Event::At(at, action));
            // A change that is reverted is the hardest to notice.
            if let Action::Store(version) = action
                && rng.u8(..3) > 0
            {
                let other = if version == "v1" { "v2" } else { "v1" };
                events.push(Event::At(at + rng.u64(20..2000), Action::Store(other)));
            }
        }
        let mut plan =
            Self { seed, scene, objects, page, users, setup: None, events, retired: false, misplaced: false };
        extras::add(&mut plan);
        plan
    }

    /// The same plan with many more of the faults that known defects need to show. Not every such plan can be finished yet.
    pub fn dense(seed: u64, scene: Option<Scene>) -> Self {
        let mut plan = Self::new(seed, scene);
        match plan.setup {
            Some(setup) => extras::thicken_controllers(&mut plan, setup),
            None => extras::thicken(&mut plan),
        }
        plan
    }
}

fn action(rng: &mut Rng, scene: Scene) -> Action {
    let server = rng.usize(..scene.servers());
    match (rng.u8(..8), scene) {
        (0..2, _) => Action::Kill,
        (2, _) => Action::Skew(rng.i64(-20..20)),
        (3, Scene::Single | Scene::Pair) => Action::Restart(server, rng.u64(100..20_000)),
        (4, Scene::Pair | Scene::Keys) => Action::Freeze(server, rng.u64(1000..60_000)),
        (5 | 6, Scene::Single | Scene::Pair | Scene::Lagging) => {
            Action::Store(if rng.bool() { "v1" } else { "v2" })
        }
        _ => Action::Kill,
    }
}
