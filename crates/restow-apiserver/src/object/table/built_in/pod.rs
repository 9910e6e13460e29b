//! The cells of a Pod.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::age::age;
use super::cell::{at, created, items, name, number, text, text_or};

/// Ready containers, the state in a word, restarts, and where it runs.
pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let statuses = items(pod, "/status/containerStatuses");
    let ready = statuses.iter().filter(|one| is_ready(one)).count();
    let all = items(pod, "/spec/containers").len();
    vec![
        name(pod),
        json!(format!("{ready}/{all}")),
        json!(state(pod)),
        json!(restarts(statuses, now)),
        created(pod, now),
        json!(text_or(pod, "/status/podIPs/0/ip", "<none>")),
        json!(text_or(pod, "/spec/nodeName", "<none>")),
        json!(text_or(pod, "/status/nominatedNodeName", "<none>")),
        json!(gates(pod)),
    ]
}

fn is_ready(status: &Value) -> bool {
    status.get("ready") == Some(&json!(true)) && at(status, "/state/running").is_some()
}

/// The phase, or a more specific reason.
fn state(pod: &Value) -> String {
    let phase = text(pod, "/status/phase");
    let mut state = text_or(pod, "/status/reason", &phase);
    let init = initializing(pod);
    if let Some(init) = init {
        state = init;
    } else {
        for status in items(pod, "/status/containerStatuses").iter().rev() {
            if let Some(reason) = reason(status) {
                state = reason;
            }
        }
        if state == "Completed" && items(pod, "/status/containerStatuses").iter().any(is_ready) {
            state = "Running".to_owned();
        }
    }
    if at(pod, "/metadata/deletionTimestamp").is_some() && !["Succeeded", "Failed"].contains(&phase.as_str())
    {
        state = "Terminating".to_owned();
    }
    state
}

fn reason(status: &Value) -> Option<String> {
    let waiting = text(status, "/state/waiting/reason");
    if !waiting.is_empty() {
        return Some(waiting);
    }
    let terminated = at(status, "/state/terminated")?;
    Some(match (text(terminated, "/reason"), number(terminated, "/signal")) {
        (reason, _) if !reason.is_empty() => reason,
        (_, 0) => format!("ExitCode:{}", number(terminated, "/exitCode")),
        (_, signal) => format!("Signal:{signal}"),
    })
}

/// The status of the first init container that has not succeeded.
fn initializing(pod: &Value) -> Option<String> {
    let all = items(pod, "/spec/initContainers").len();
    let statuses = items(pod, "/status/initContainerStatuses");
    let ended = |one: &Value| {
        at(one, "/state/terminated").is_some_and(|end| number(end, "/exitCode") == 0)
            || one.get("started") == Some(&json!(true))
    };
    let (index, status) = statuses.iter().enumerate().find(|(_, one)| !ended(one))?;
    let reason = reason(status).filter(|reason| reason != "PodInitializing");
    Some(reason.map_or_else(|| format!("Init:{index}/{all}"), |reason| format!("Init:{reason}")))
}

fn restarts(statuses: &[Value], now: Timestamp) -> String {
    let count: i64 = statuses.iter().map(|one| number(one, "/restartCount")).fold(0, i64::saturating_add);
    let ends = statuses.iter().filter_map(|one| text(one, "/lastState/terminated/finishedAt").parse().ok());
    match ends.max() {
        Some(last) if count != 0 => format!("{count} ({} ago)", age(last, now)),
        _ => count.to_string(),
    }
}

fn gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let is_open = |gate: &&Value| {
        let kind = text(gate, "/conditionType");
        let conditions = items(pod, "/status/conditions").iter();
        conditions.filter(|one| text(one, "/type") == kind).any(|one| text(one, "/status") == "True")
    };
    format!("{}/{}", gates.iter().filter(is_open).count(), gates.len())
}
