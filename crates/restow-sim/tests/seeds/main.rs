//! Seeds: each replays exactly, finds nothing where nothing is wrong, and nothing is wrong.

use restow_sim::plan::{Plan, Scene};
use restow_sim::run::run;
use restow_sim::shrink::shrink;

/// How many seeds `cargo test` runs; `cargo xtask simulate` runs more.
const SEEDS: u64 = 300;
/// Further ones that have shown a defect.
const FOUND: [u64; 11] = [417, 1092, 1196, 3324, 3984, 5160, 7016, 8149, 21761, 22088, 22485];
/// How many of them in each scene of the controllers.
const CONTROLLERS: u64 = 8;
/// Further ones that have shown a defect there.
const FOUND_CONTROLLERS: [(u64, Scene); 1] = [(1213, Scene::Controllers)];

#[test]
fn a_seed_replays_exactly() {
    let engine = (0..24).map(|seed| (seed, None));
    let controllers = (0..4).flat_map(|seed| Scene::CONTROLLERS.map(|scene| (seed, Some(scene))));
    for (seed, scene) in engine.chain(controllers) {
        let plan = Plan::new(seed, scene);
        let (first, second) = (run(&plan), run(&plan));
        let differs = first.steps.iter().zip(&second.steps).find(|(one, other)| one != other);
        assert_eq!(first.digest, second.digest, "seed {seed} parts here: {differs:#?}");
    }
}

#[test]
fn nothing_is_found_where_nothing_goes_wrong() {
    for scene in Scene::ALL.into_iter().chain(Scene::CONTROLLERS) {
        for seed in 0..6 {
            let mut plan = Plan::new(seed, Some(scene));
            plan.events.retain(|event| scene.encrypts() && event.is_rotation());
            let report = run(&plan);
            assert_eq!(report.violation, None, "seed {seed} in {scene}: {:#?}", report.steps);
        }
    }
}

#[test]
fn seeds_pass() {
    let mut failed = Vec::new();
    let engine = (0..SEEDS).chain(FOUND).map(|seed| (seed, None));
    let controllers = (0..CONTROLLERS).flat_map(|seed| Scene::CONTROLLERS.map(|scene| (seed, Some(scene))));
    let found = FOUND_CONTROLLERS.map(|(seed, scene)| (seed, Some(scene)));
    for (seed, scene) in engine.chain(controllers).chain(found) {
        let plan = Plan::new(seed, scene);
        let report = run(&plan);
        if report.violation.is_none() {
            continue;
        }
        let (smaller, report) = shrink(&plan, report);
        let Some(violation) = report.violation else { continue };
        failed.push(format!(
            "seed {seed} ({}): {}: {}\n  {:?}\n  cargo xtask simulate --seed {seed} --scene {}",
            plan.scene, violation.invariant, violation.what, smaller.events, plan.scene
        ));
    }
    assert!(failed.is_empty(), "{} seeds fail:\n{}", failed.len(), failed.join("\n"));
}
