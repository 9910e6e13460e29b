//! The same plans on real control planes: etcd and kube-apiserver as processes, and the restow binary as users run it.
//!
//! What a plan says is done by the means of the lab: a proxy does to requests what [`crate::layer`] does, SIGKILL ends
//! restow, SIGSTOP freezes a server. The oracle is the simulation's own; it is fed from a watch on etcd. A plan does not
//! replay exactly here, and these of its parts are not as in the simulation:
//!
//! - Clocks are the machine's own: [`Deed::Skew`] does nothing.
//! - [`Scene::Lagging`] is one server, whose handlers lag as they really do.
//! - A server takes up a new encryption key as kube-apiserver does: within a minute of a change of its file when the
//!   seed is even, by a restart when it is odd.
//! - Answers are late, and servers frozen, for [`LONGEST`] at most: restow waits longer than that for any answer, so
//!   that more of it would make only the run longer.

mod process;
mod proxy;
mod world;

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use restow_lab::{Assets, Cluster, ClusterSpec, Encryption, ServerSpec};

use crate::plan::{Deed, Event, Plan, Scene};
use crate::run::Report;

/// The longest that an answer is late, or a server is frozen.
const LONGEST: Duration = Duration::from_secs(20);
/// How long a run may go on after the last fault. Nothing that restow waits for by itself takes longer.
const PATIENCE: Duration = Duration::from_secs(400);
/// How many steps of a plan that failed are shown.
const LAST: usize = 120;
/// How many plans share a control plane at one time.
const AT_ONCE: usize = 8;

/// A kind of control plane; plans of one kind share one.
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
        // Every revision is to be read once.
        let server = ServerSpec::new().flag("etcd-compaction-interval", "0");
        let spec = ClusterSpec::new().server(0, server.clone());
        match self {
            Self::One => spec,
            Self::Two => spec.server(1, server),
            Self::Keys => spec.server(1, server).encryption(configuration(0)),
        }
    }
}

/// The encryption configuration of a round: each plan that rotates keys begins with the last one's. All servers know both
/// keys at any time, as in any rotation that is done well.
fn configuration(round: usize) -> Encryption {
    Encryption::aescbc(&[&key(round), &key(round + 1)])
}

/// The key that writes in a round.
fn key(round: usize) -> String {
    format!("key{}", round % 2)
}

/// Whether a plan runs on real control planes at all.
pub fn is_real(plan: &Plan) -> bool {
    Kind::of(plan.scene).is_some()
}

/// Whether a plan does to API servers what other plans would notice.
fn disturbs(plan: &Plan) -> bool {
    let disturbing =
        |event: &Event| matches!(event, Event::At(_, Deed::Restart(..) | Deed::Freeze(..) | Deed::Rotate(_)));
    plan.events.iter().any(disturbing)
}

/// Runs plans with the restow binary at a path, several at a time; tells how each ended as soon as it has.
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

/// What became of a plan, and for one that failed its last steps and how it is run again.
pub fn told(plan: &Plan, report: &Report) -> String {
    let (seed, scene, seconds) = (plan.seed, plan.scene, report.seconds);
    let Some(violation) = &report.violation else {
        return format!("seed {seed} ({scene}): passed in {seconds:.0} s");
    };
    let last = report.steps.len().saturating_sub(LAST);
    format!(
        "seed {seed} ({scene}) violates {}: {}\n{plan:#?}\nits last steps:\n{}\nrun it again with: cargo xtask \
         simulate --real --seed {seed} --scene {scene}",
        violation.invariant,
        violation.what,
        report.steps[last..].join("\n")
    )
}

/// Runs plans on one control plane: first those that do not disturb each other, then the others one by one.
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
        for _ in 0..AT_ONCE.min(calm.len()) {
            scope.spawn(|| {
                while let Some(plan) = next() {
                    ended(plan, world::run(plan, &cluster, restow, 0));
                }
            });
        }
    });
    for (round, plan) in disturbing.iter().enumerate() {
        ended(plan, world::run(plan, &cluster, restow, round));
    }
    Ok(())
}
