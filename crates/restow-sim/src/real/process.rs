//! Runs the restow binary as a user would, and judges its exit code, its report and the objects that it quarantines.

use std::process::Stdio;

use anyhow::Context as _;
use restow_clock::Instant;
use restow_core::rewrite::progress::Progress;
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::watch;

use super::world::World;
use crate::driver::{End, until_done};
use crate::plan::Scene;

/// Runs restow until it is done. Each kill sends SIGKILL and restarts it.
pub(super) async fn drive(world: &World<'_>, kills: watch::Receiver<u32>) {
    let run = async |resume, since| match process(world, resume, since).await {
        Ok(end) => end,
        Err(error) => {
            world.trace.violate("setup", format!("{error:#}"));
            End::Done
        }
    };
    until_done(&world.trace, kills, run).await;
}

fn command(world: &World<'_>, resume: bool) -> Command {
    let plan = world.plan;
    let resource =
        if plan.scene == Scene::Keys { "secrets".to_owned() } else { format!("boats.{}", world.group) };
    let mut command = Command::new(world.restow);
    command.args(["migrate", &resource, "--output", "json", "--pace", "fast"]);
    command.args(["--page-size", &plan.page.to_string()]);
    command.args(["--list", if plan.seed.is_multiple_of(4) { "streaming" } else { "chunked" }]);
    match plan.scene {
        Scene::Keys => command.args(["--encrypted", "secrets"]),
        _ => command.arg("--prune-stored-versions"),
    };
    if plan.scene == Scene::Lagging {
        command.arg("--assume-single-server");
    }
    // The advertised addresses of the lab's servers cannot be reached.
    for recorder in world.recorders.iter().filter(|_| world.recorders.len() > 1) {
        command.args(["--api-server", &recorder.url()]);
    }
    if plan.retired {
        command.arg("--repair-managed-fields");
    }
    if resume {
        command.arg("--resume");
    }
    command.env("KUBECONFIG", world.recorders[0].kubeconfig()).env("XDG_STATE_HOME", world.state.path());
    command.env_remove("RESTOW_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

async fn process(world: &World<'_>, resume: bool, since: Instant) -> anyhow::Result<End> {
    world.trace.step(if resume { "restow starts, to resume" } else { "restow starts" });
    let ran = command(world, resume).spawn()?.wait_with_output().await?;
    for line in String::from_utf8_lossy(&ran.stderr).lines().filter(|line| !line.is_empty()) {
        world.trace.step(&format!("restow says: {line}"));
    }
    world.caught_up().await?;
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
    let code = ran.status.code().unwrap_or(-1);
    world.trace.step(&format!("restow ends with {code}: {report}"));
    judge(world, code, &report, resume, since).await
}

/// Judges a process of a run that started at this time.
async fn judge(
    world: &World<'_>,
    code: i32,
    report: &Value,
    resume: bool,
    since: Instant,
) -> anyhow::Result<End> {
    let resource = &report["resources"][0];
    let error = resource["error"].as_str().unwrap_or_default();
    let left: Vec<&str> = resource["quarantined"]
        .as_array()
        .map(|left| left.iter().filter_map(|object| object["name"].as_str()).collect())
        .unwrap_or_default();
    if resource["verified"] == true {
        verified(world, resource)?;
    }
    for name in &left {
        if !world.plan.is_misplaced(name) && !world.shared.request_log().is_to_blame(name) {
            world.trace.violate("L2", format!("{name} is quarantined, but was never refused"));
        }
    }
    match code {
        0 if resource["verified"] == true && left.is_empty() && report["succeeded"] == true => {
            settled(world, &left).await
        }
        3 if !left.is_empty() && resource["verified"] != true => {
            let refused = left.iter().all(|name| world.plan.is_refused(name));
            if refused { settled(world, &left).await } else { Ok(End::Again { resume: false }) }
        }
        // It could not start.
        1 | 2 if resource.is_null() && report["error"].is_string() => Ok(End::Again { resume }),
        1 | 4 if passes(world, code, error, since) => Ok(End::Again { resume: false }),
        1 | 4 => {
            world.trace.violate("L1", format!("a passing fault ended a healthy run: {error}"));
            Ok(End::Again { resume: true })
        }
        _ => {
            world.trace.violate("L1", format!("exit code {code} does not fit the report: {report}"));
            Ok(End::Again { resume: true })
        }
    }
}

/// Whether a run that started at this time may end early with this exit code and error.
fn passes(world: &World<'_>, code: i32, error: &str, since: Instant) -> bool {
    let is_one = |reasons: &[&str]| reasons.iter().any(|reason| error.contains(reason));
    // It reports that nothing is proven, or that the next run has to prune.
    if is_one(&["is not proven", "storedVersions were not pruned"]) {
        return true;
    }
    if is_one(&["changed during the run"]) {
        return world.has_moved_since(since);
    }
    let restless = is_one(&["rewritten again in pass", "API servers joined, left or restarted"]);
    world.plan.moves() && (code == 4 || restless)
}

/// S2: judges a run that reports that it is verified.
fn verified(world: &World<'_>, resource: &Value) -> anyhow::Result<()> {
    if world.plan.scene == Scene::Keys {
        let (hash, measured) =
            (resource["encryption"]["configHash"].as_str(), world.shared.request_log().measured);
        world.oracle.verified(hash.and_then(|hash| world.key_of(hash)).as_deref(), measured);
        return Ok(());
    }
    // Pruning reads the CRD again, which may have changed since.
    let proven = kept(world).context("a verified run has saved no progress")?.updated;
    world.oracle.verified(resource["storageVersion"].as_str(), world.shared.looked_before(proven));
    Ok(())
}

/// The progress that restow has saved.
fn kept(world: &World<'_>) -> Option<Progress> {
    let name = format!("boats.{}.json", world.group);
    let clusters = std::fs::read_dir(world.state.path().join("restow")).ok()?;
    let files = clusters.filter_map(|cluster| std::fs::read(cluster.ok()?.path().join(&name)).ok());
    let saved = files.filter_map(|file| serde_json::from_slice::<Value>(&file).ok());
    let kept = saved.filter_map(|mut saved| serde_json::from_value(saved["progress"].take()).ok());
    // A run that could not identify the cluster has saved its progress elsewhere.
    kept.max_by_key(|progress: &Progress| progress.updated)
}

/// Waits until nothing more happens, and returns whether something is left to do.
async fn settled(world: &World<'_>, left: &[&str]) -> anyhow::Result<End> {
    world.at_rest().await;
    world.caught_up().await?;
    let wanted = world.wanted();
    let stale = world.oracle.stale(&wanted);
    if stale.iter().all(|name| left.contains(&name.as_str())) {
        return Ok(End::Done);
    }
    world.trace.step(&format!("not as {wanted}: {}", stale.join(" ")));
    Ok(End::Again { resume: false })
}
