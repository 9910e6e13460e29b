//! `cargo xtask simulate`: runs seeds, and shows one that fails as small as it can be made.
#![allow(clippy::disallowed_methods)] // seeds are counted in real time

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Parser;
use restow_lab::Assets;
use restow_sim::plan::{Plan, Scene};
use restow_sim::real;
use restow_sim::report::Report;
use restow_sim::run::run;
use restow_sim::shrink::shrink;

/// Simulates a cluster that goes wrong in ways drawn from seeds.
#[derive(Parser)]
#[command(name = "cargo xtask simulate")]
struct Args {
    /// Replay this seed, and print every step.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds to run [default: 1000].
    #[arg(long)]
    seeds: Option<u64>,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this scene: single, pair, lagging, keys, controllers or rotation.
    #[arg(long, value_parser = scene)]
    scene: Option<Scene>,
    /// Continue after a failing seed.
    #[arg(long)]
    keep_going: bool,
    /// Show a failing seed as it is, without making it smaller.
    #[arg(long)]
    no_shrink: bool,
    /// Make much more of the trouble that known defects need to show, as `cargo xtask bugs` does.
    #[arg(long, conflicts_with = "real")]
    dense: bool,
    /// Run the seeds on real control planes, with the restow binary of --restow: 24 unless --seeds says otherwise.
    #[arg(long, requires = "restow")]
    real: bool,
    /// The restow binary for --real.
    #[arg(long, value_name = "FILE")]
    restow: Option<PathBuf>,
}

fn scene(name: &str) -> Result<Scene, String> {
    let mut all = Scene::ALL.into_iter().chain(Scene::CONTROLLERS);
    all.find(|scene| scene.to_string() == name).ok_or_else(|| format!("no scene {name:?}"))
}

fn plan(args: &Args, seed: u64) -> Plan {
    if args.dense { Plan::dense(seed, args.scene) } else { Plan::new(seed, args.scene) }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let (true, Some(restow)) = (args.real, &args.restow) {
        return real(&args, restow);
    }
    if let Some(seed) = args.seed {
        let plan = plan(&args, seed);
        let report = run(&plan);
        for step in &report.steps {
            println!("{step}");
        }
        println!("{plan:#?}");
        println!("{:.1} s were simulated; the digest is {:016x}", report.seconds, report.digest);
        if report.violation.is_none() {
            return ExitCode::SUCCESS;
        }
        show(&args, &plan, report);
        return ExitCode::FAILURE;
    }
    let began = Instant::now();
    let mut scenes: BTreeMap<Scene, (u64, BTreeMap<String, u64>)> = BTreeMap::new();
    let mut failed = 0;
    for seed in args.from..args.from.saturating_add(args.seeds.unwrap_or(1000)) {
        let plan = plan(&args, seed);
        let report = run(&plan);
        let (runs, violations) = scenes.entry(plan.scene).or_default();
        *runs += 1;
        if let Some(violation) = &report.violation {
            failed += 1;
            *violations.entry(violation.invariant.to_owned()).or_default() += 1;
            if !args.keep_going {
                show(&args, &plan, report);
                break;
            }
            println!("seed {seed} ({}): {}: {}", plan.scene, violation.invariant, violation.what);
        }
        if seed % 500 == 499 {
            eprintln!("{} seeds, {:.0} s", seed + 1 - args.from, began.elapsed().as_secs_f64());
        }
    }
    let runs: u64 = scenes.values().map(|(runs, _)| runs).sum();
    let seconds = began.elapsed().as_secs_f64();
    for (scene, (runs, violations)) in &scenes {
        println!("{scene:>11}: {runs} runs, violated: {violations:?}");
    }
    println!(
        "{runs} seeds in {seconds:.1} s, {:.1} ms each; {failed} failed",
        seconds * 1000.0 / runs.max(1) as f64
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(args: &Args, plan: &Plan, report: Report) {
    let (smaller, report) = if args.no_shrink { (plan.clone(), report) } else { shrink(plan, report) };
    let Some(violation) = &report.violation else { return };
    println!("seed {} violates {}: {}", plan.seed, violation.invariant, violation.what);
    println!("the smallest plan that does: {smaller:#?}");
    println!("its last steps:");
    for step in report.steps.iter().rev().take(60).rev() {
        println!("{step}");
    }
    let scene = args.scene.map(|scene| format!(" --scene {scene}")).unwrap_or_default();
    let dense = if args.dense { " --dense" } else { "" };
    println!("replay it with: cargo xtask simulate --seed {}{scene}{dense}", plan.seed);
}

/// Runs seeds on real control planes.
fn real(args: &Args, restow: &Path) -> ExitCode {
    let seeds = match args.seed {
        Some(seed) => seed..seed.saturating_add(1),
        None => args.from..args.from.saturating_add(args.seeds.unwrap_or(24)),
    };
    let plans: Vec<Plan> = seeds.map(|seed| Plan::new(seed, args.scene)).filter(real::is_real).collect();
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let began = Instant::now();
    let failed = Mutex::new(0);
    let ended = |plan: &Plan, report: Report| {
        if args.seed.is_some() {
            report.steps.iter().for_each(|step| println!("{step}"));
        }
        println!("{}", real::summary(plan, &report));
        if report.violation.is_some() {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
    };
    let ran = real::run_all(&assets, restow, &plans, ended);
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} seeds in {:.0} s; {failed} failed", plans.len(), began.elapsed().as_secs_f64());
    match ran {
        Ok(()) if failed == 0 => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
