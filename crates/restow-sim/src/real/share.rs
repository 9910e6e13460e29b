//! Plans of one kind share one control plane.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use restow_lab::{Assets, Cluster, ClusterSpec, ServerSpec};

use super::encryption::configuration;
use super::run::run;
use crate::plan::{Action, Event, Plan, Scene};
use crate::report::Report;

/// How many steps of a failed plan are shown.
const SHOWN_STEPS: usize = 120;
/// How many plans share a control plane at a time.
const CONCURRENT_PLANS: usize = 8;

/// A kind of control plane. Plans of one kind share a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One API server.
    One,
    /// Two API servers.
    Two,
    /// Two API servers that encrypt Secrets.
    Keys,
}

impl Kind {
    fn of(scene: Scene) -> Option<Self> {
        match scene {
            Scene::Single | Scene::Lagging => Some(Self::One),
            Scene::Pair => Some(Self::Two),
            Scene::Keys => Some(Self::Keys),
            Scene::Controllers | Scene::Rotation => None,
        }
    }

    fn spec(self) -> ClusterSpec {
        // The oracle reads every revision.
        let server = ServerSpec::new().flag("etcd-compaction-interval", "0");
        let spec = ClusterSpec::new().server(0, server.clone());
        match self {
            Self::One => spec,
            Self::Two => spec.server(1, server),
            Self::Keys => spec.server(1, server).encryption(configuration(0)),
        }
    }
}

/// Whether a plan can run on real control planes.
pub fn is_real(plan: &Plan) -> bool {
    Kind::of(plan.scene).is_some()
}

/// Whether a plan affects other plans on the same API servers.
fn disturbs(plan: &Plan) -> bool {
    let disturbing = |event: &Event| {
        matches!(event, Event::At(_, Action::Restart(..) | Action::Freeze(..) | Action::Rotate(_)))
    };
    plan.events.iter().any(disturbing)
}

/// Runs plans with the restow binary at this path, several at a time, and calls `ended` with each report.
pub fn run_all(
    assets: &Assets,
    restow: &Path,
    plans: &[Plan],
    ended: impl Fn(&Plan, Report) + Sync,
) -> anyhow::Result<()> {
    let ended = &ended;
    std::thread::scope(|scope| {
        let kinds = [Kind::One, Kind::Two, Kind::Keys].map(|kind| {
            let (calm, disturbing): (Vec<&Plan>, Vec<&Plan>) = plans
                .iter()
                .filter(|plan| Kind::of(plan.scene) == Some(kind))
                .partition(|plan| !disturbs(plan));
            scope.spawn(move || {
                if calm.is_empty() && disturbing.is_empty() {
                    return Ok(());
                }
                share(assets, restow, kind, &calm, &disturbing, ended)
            })
        });
        for kind in kinds {
            kind.join().map_err(|_| anyhow::anyhow!("a control plane could not be driven"))??;
        }
        Ok(())
    })
}

/// The result of a plan; for a failed one with its last steps and the command to repeat it.
pub fn summary(plan: &Plan, report: &Report) -> String {
    let (seed, scene, seconds) = (plan.seed, plan.scene, report.seconds);
    let Some(violation) = &report.violation else {
        return format!("seed {seed} ({scene}): passed in {seconds:.0} s");
    };
    let last = report.steps.len().saturating_sub(SHOWN_STEPS);
    format!(
        "seed {seed} ({scene}) violates {}: {}\n{plan:#?}\nits last steps:\n{}\nrun it again with: cargo xtask \
         simulate --real --seed {seed} --scene {scene}",
        violation.invariant,
        violation.what,
        report.steps[last..].join("\n")
    )
}

/// Runs plans on one control plane: first those that do not affect each other, then the others one by one.
fn share(
    assets: &Assets,
    restow: &Path,
    kind: Kind,
    calm: &[&Plan],
    disturbing: &[&Plan],
    ended: &(impl Fn(&Plan, Report) + Sync),
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let cluster =
        runtime.block_on(Cluster::start(assets, kind.spec())).context("starting a control plane")?;
    let queue = Mutex::new(calm.iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next().copied();
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENT_PLANS.min(calm.len()) {
            scope.spawn(|| {
                while let Some(plan) = next() {
                    ended(plan, run(plan, &cluster, restow, 0));
                }
            });
        }
    });
    for (round, plan) in disturbing.iter().enumerate() {
        ended(plan, run(plan, &cluster, restow, round));
    }
    Ok(())
}
