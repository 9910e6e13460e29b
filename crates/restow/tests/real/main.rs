//! Plans of the simulation on real control planes, with restow as users run it and what etcd holds as the judge.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::path::Path;
use std::sync::Mutex;

use restow_sim::plan::{Plan, Scene};
use restow_sim::real::{run_all, summary};

/// How many seeds of each scene `cargo test` runs; `cargo xtask simulate --real` runs more.
const SEEDS: [(Scene, u64); 4] =
    [(Scene::Single, 8), (Scene::Pair, 6), (Scene::Lagging, 4), (Scene::Keys, 2)];

#[test]
fn seeds_pass_on_real_control_planes() {
    let Some(assets) = restow_lab::assets::or_skip("seeds on real control planes") else { return };
    let plans = SEEDS.map(|(scene, seeds)| (0..seeds).map(move |seed| Plan::new(seed, Some(scene))));
    let plans: Vec<Plan> = plans.into_iter().flatten().collect();
    let (all, failed) = (Mutex::new(0), Mutex::new(Vec::new()));
    run_all(&assets, Path::new(env!("CARGO_BIN_EXE_restow")), &plans, |plan, report| {
        println!("{}", summary(plan, &report).lines().next().unwrap());
        *all.lock().unwrap() += 1;
        if report.violation.is_some() {
            failed.lock().unwrap().push(summary(plan, &report));
        }
    })
    .unwrap();
    let failed = failed.into_inner().unwrap();
    assert_eq!(*all.lock().unwrap(), plans.len(), "not every plan was run");
    assert!(failed.is_empty(), "{} of {} seeds fail:\n{}", failed.len(), plans.len(), failed.join("\n\n"));
}
