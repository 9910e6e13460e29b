//! What `restow retire` has done, for programs.

use restow_core::controller::retirement::{Observed, Refusal, Step, plan};
use restow_migrate::owners::FieldOwners;
use serde_json::{Value, json};

/// What was done and what is left, for programs.
pub(crate) fn report(
    observed: &Observed,
    owners: &FieldOwners,
    taken: &[Step],
    refused: Option<&Refusal>,
) -> Value {
    let Observed { version, crd, .. } = observed;
    let (remaining, _) = plan(observed);
    let each = |step: &Step| match step {
        Step::SetStorage { to } => json!({"step": step.name(), "to": to}),
        Step::Check { from, to } => json!({"step": step.name(), "from": from, "to": to}),
        _ => json!({"step": step.name()}),
    };
    let versions = |(name, served): &(String, bool)| json!({"name": name, "served": served, "storage": *name == crd.storage_version});
    let losses = match refused {
        Some(Refusal::Loses { losses, .. }) => losses.as_slice(),
        _ => &[],
    };
    let is_gone = crd.versions.iter().all(|(name, _)| name != version);
    json!({
        "resource": crd.name.to_string(),
        "version": version,
        "retired": is_gone && refused.is_none() && remaining.is_empty(),
        "versions": crd.versions.iter().map(versions).collect::<Vec<_>>(),
        "storedVersions": crd.stored_versions,
        "fieldOwners": {
            "objects": owners.objects, "owned": owners.owned, "managers": owners.managers, "unreadable": owners.unreadable,
        },
        "taken": taken.iter().map(each).collect::<Vec<_>>(),
        "remaining": remaining.iter().map(each).collect::<Vec<_>>(),
        "refused": refused.map(|refusal| json!({
            "reason": refusal.name(), "message": refusal.to_string(), "losses": losses,
        })),
    })
}
