//! Metadata on delete.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Rules, field, finalizers, generation, is_deleting, name, set, text, time};
use crate::http::status::{Cause, GroupKind, StatusError};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The options of a delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub grace_period_seconds: Option<i64>,
    /// The propagation policy: `Orphan`, `Background` or `Foreground`.
    pub propagation_policy: Option<String>,
    /// The deprecated form of the propagation policy.
    pub orphan_dependents: Option<bool>,
    /// The precondition on the uid.
    pub uid: Option<String>,
    /// The precondition on the resourceVersion.
    pub resource_version: Option<String>,
    /// Whether nothing is stored.
    pub dry_run: bool,
}

/// What a delete does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deletion {
    /// The object is deleted now.
    Remove,
    /// The object stays, in this form, until its finalizers are removed or its grace period is over.
    Mark(Value),
    /// The object is already being deleted: nothing is written.
    Pending,
}

impl Options {
    /// Parses a `DeleteOptions` object.
    pub(crate) fn parse(body: &Value) -> Result<Self, StatusError> {
        check_types(body)?;
        let precondition = |key| {
            body.get("preconditions")
                .and_then(|given| given.get(key))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let options = Self {
            grace_period_seconds: body.get("gracePeriodSeconds").and_then(Value::as_i64),
            propagation_policy: body.get("propagationPolicy").and_then(Value::as_str).map(str::to_owned),
            orphan_dependents: body.get("orphanDependents").and_then(Value::as_bool),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            dry_run: body.get("dryRun").and_then(Value::as_array).is_some_and(|list| !list.is_empty()),
        };
        options.check(body.get("dryRun"))?;
        Ok(options)
    }

    /// Refuses contradictory or unsupported options.
    pub(crate) fn check(&self, dry_run: Option<&Value>) -> Result<(), StatusError> {
        let mut causes = Vec::new();
        if let Some(policy) = &self.propagation_policy {
            if self.orphan_dependents.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                causes.push(Cause::invalid_text("propagationPolicy", policy, detail));
            }
            if !["Foreground", "Background", "Orphan"].contains(&policy.as_str()) {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                causes.push(Cause::not_supported("propagationPolicy", &json!(policy), &known));
            }
        }
        let values = dry_run.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if values.iter().any(|value| value != "All") {
            causes.push(Cause::not_supported("dryRun", &json!(values), &["All"]));
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(StatusError::invalid(&GroupKind::new("meta.k8s.io", "DeleteOptions"), "", causes))
    }
}

/// Refuses a body that is not a `DeleteOptions` object.
fn check_types(body: &Value) -> Result<(), StatusError> {
    let is = |key: &str, holds: fn(&Value) -> bool| {
        body.get(key).is_none_or(|value| value.is_null() || holds(value))
    };
    let kind = body.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
    let fits = (body.is_object() || body.is_null())
        && is("gracePeriodSeconds", Value::is_i64)
        && is("propagationPolicy", Value::is_string)
        && is("orphanDependents", Value::is_boolean)
        && is("preconditions", Value::is_object)
        && is("dryRun", Value::is_array);
    if fits && kind == "DeleteOptions" {
        return Ok(());
    }
    Err(StatusError::bad_request(format!("{kind} cannot be handled as a DeleteOptions")))
}

/// Decides on a delete. `object` has its resourceVersion.
pub(crate) fn decide(
    object: &Value,
    rules: &Rules,
    options: &Options,
    now: Timestamp,
) -> Result<Deletion, StatusError> {
    check_preconditions(object, rules, options)?;
    let grace = match grace(object, rules, options, now) {
        Grace::Pending => return Ok(Deletion::Pending),
        other => other,
    };
    let mut marked = object.clone();
    let finalizers = finalizers_after(object, rules, options);
    let held = !finalizers.is_empty();
    set(&mut marked, "finalizers", held.then(|| json!(finalizers)));
    match grace {
        Grace::Until { at, seconds } if seconds > 0 || held => {
            begin(&mut marked, at, seconds);
            Ok(Deletion::Mark(marked))
        }
        _ if held => {
            let before =
                field(object, "deletionTimestamp").and_then(Value::as_str).and_then(|at| at.parse().ok());
            begin(&mut marked, before.filter(|before| *before <= now).unwrap_or(now), 0);
            Ok(if marked == *object { Deletion::Pending } else { Deletion::Mark(marked) })
        }
        _ => Ok(Deletion::Remove),
    }
}

fn check_preconditions(object: &Value, rules: &Rules, options: &Options) -> Result<(), StatusError> {
    let (uid, version) = (text(object, "uid"), text(object, "resourceVersion"));
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        return Err(StatusError::delete_uid_precondition(&rules.kind, name(object), wanted, uid));
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        return Err(StatusError::delete_version_precondition(&rules.kind, name(object), wanted, version));
    }
    Ok(())
}

/// The grace period of an object.
enum Grace {
    /// There is none.
    None,
    /// It has started before, and is not shortened.
    Pending,
    /// Until then.
    Until { at: Timestamp, seconds: i64 },
}

fn grace(object: &Value, rules: &Rules, options: &Options, now: Timestamp) -> Grace {
    if !rules.graceful {
        return Grace::None;
    }
    let asked = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if !is_deleting(object) {
        let seconds = pod_grace(object, asked);
        return Grace::Until { at: later(now, seconds), seconds };
    }
    let running = field(object, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let (Some(asked), true) = (asked, running > 0) else {
        return if running > 0 { Grace::Pending } else { Grace::None };
    };
    if asked >= running {
        return Grace::Pending;
    }
    let end = field(object, "deletionTimestamp").and_then(Value::as_str).and_then(|at| at.parse().ok());
    let at = later(later(end.unwrap_or(now), running.saturating_neg()), asked);
    if at < now {
        return Grace::Until { at: now, seconds: asked.min(1) };
    }
    Grace::Until { at, seconds: asked }
}

/// The grace period of a Pod: none if it is not running.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let spec = |key| pod.get("spec").and_then(|spec| spec.get(key));
    let scheduled = spec("nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty());
    let phase = pod.get("status").and_then(|status| status.get("phase")).and_then(Value::as_str);
    if !scheduled || matches!(phase, Some("Succeeded" | "Failed")) {
        return 0;
    }
    let own = spec("terminationGracePeriodSeconds").and_then(Value::as_i64);
    let seconds = asked.or(own).unwrap_or(0);
    if seconds < 0 { 1 } else { seconds }
}

fn later(from: Timestamp, seconds: i64) -> Timestamp {
    from.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(from)
}

fn begin(object: &mut Value, at: Timestamp, seconds: i64) {
    if !is_deleting(object) && generation(object) > 0 {
        let next = generation(object) + 1;
        set(object, "generation", Some(json!(next)));
    }
    set(object, "deletionTimestamp", Some(json!(time(at))));
    set(object, "deletionGracePeriodSeconds", Some(json!(seconds)));
}

fn finalizers_after(object: &Value, rules: &Rules, options: &Options) -> Vec<String> {
    let before = finalizers(object);
    let before_owned = || before.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    if !rules.collected {
        return before_owned();
    }
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(orphan), _) => (orphan, false),
        (None, Some("Orphan")) => (true, false),
        (None, Some("Foreground")) => (false, true),
        (None, Some(_)) => (false, false),
        (None, None) => match before.iter().find(|name| [ORPHAN, FOREGROUND].contains(*name)) {
            Some(name) => (*name == ORPHAN, *name == FOREGROUND),
            None => (false, false),
        },
    };
    if before.contains(&ORPHAN) == orphan && before.contains(&FOREGROUND) == foreground {
        return before_owned();
    }
    let mut after: Vec<_> =
        before_owned().into_iter().filter(|name| name != ORPHAN && name != FOREGROUND).collect();
    after.extend(orphan.then(|| ORPHAN.to_owned()));
    after.extend(foreground.then(|| FOREGROUND.to_owned()));
    after
}
