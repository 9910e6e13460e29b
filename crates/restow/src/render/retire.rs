//! What `restow retire` shows: who uses a version, the steps, and what to do when a gate says no.

mod report;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use restow_core::controller::crd_manager::CrdManager;
use restow_core::controller::retirement::{
    Observed, Refusal, RequestCounts, Requests, Step, changed, edits, stability,
};
use restow_migrate::owners::FieldOwners;
use serde_json::Value;

pub(crate) use self::report::report;
use crate::render::table::wrap;
use crate::render::text::{count, counted, yaml};

/// What is shown.
pub(crate) struct Shown<'a> {
    pub(crate) observed: &'a Observed,
    pub(crate) versions: &'a [Value],
    pub(crate) owners: &'a FieldOwners,
    pub(crate) manager: Option<&'a CrdManager>,
}

/// How many managers are named.
const NAMED: usize = 5;

/// Who uses the version.
pub(crate) fn usage(
    shown: &Shown<'_>,
    counts: &Result<BTreeMap<String, RequestCounts>, String>,
    width: Option<usize>,
) -> String {
    let Shown { observed, owners, .. } = shown;
    let Observed { version, crd, .. } = observed;
    let mut text = format!("{}: retire {version}\n", crd.name);
    let mut line = |what: &str, value: String| wrap(&format!("{what}: {value}"), width, &mut text);
    line("stored", stored(observed));
    line("requested", requested(counts));
    line("fields", fields(version, owners));
    line(
        "converted",
        match crd.webhook {
            true => "by a webhook".to_owned(),
            false => "by API servers: only apiVersion differs".to_owned(),
        },
    );
    line("deprecated", deprecated(observed));
    if let Some(manager) = shown.manager {
        line("managed", format!("by {}, as {} shows", manager.tool, manager.evidence));
    }
    text
}

fn stored(observed: &Observed) -> String {
    let Observed { version, crd, .. } = observed;
    let stored = crd.stored_versions.join(", ");
    if crd.storage_version == *version {
        format!("objects are stored in {version} (storedVersions: {stored})")
    } else if crd.stored_versions.contains(version) {
        format!("objects may be stored in {version} (storedVersions: {stored})")
    } else {
        format!("no longer, by status.storedVersions: {stored}")
    }
}

fn requested(counts: &Result<BTreeMap<String, RequestCounts>, String>) -> String {
    let counts = match counts {
        Ok(counts) if counts.values().all(|one| one.complete) => counts,
        Ok(_) => return "not known: the API servers do not count requests in their metrics".to_owned(),
        Err(why) => return format!("not known: {why}"),
    };
    let mut verbs: BTreeMap<String, u64> = BTreeMap::new();
    for one in counts.values() {
        one.ended.iter().for_each(|(verb, count)| *verbs.entry(verb.clone()).or_default() += count);
        let open = one.open.iter().filter(|(_, count)| **count > 0);
        open.for_each(|(verb, count)| *verbs.entry(format!("open {verb}")).or_default() += count);
    }
    let each: Vec<String> = verbs.iter().map(|(verb, number)| format!("{} {verb}", count(*number))).collect();
    match each.is_empty() {
        true => "not since the API servers started".to_owned(),
        false => format!("since the API servers started: {}", each.join(", ")),
    }
}

fn fields(version: &str, owners: &FieldOwners) -> String {
    if owners.owned == 0 {
        return format!("of {}, none has an owner through {version}", counted(owners.objects, "object"));
    }
    let mut managers: Vec<(&String, &u64)> = owners.managers.iter().collect();
    managers.sort_by_key(|(_, objects)| std::cmp::Reverse(**objects));
    let named: Vec<String> =
        managers.iter().take(NAMED).map(|(name, objects)| format!("{name} {}", count(**objects))).collect();
    let more = managers.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "{} of {} have owners through {version}: {}{more}",
        count(owners.owned),
        counted(owners.objects, "object"),
        named.join(", ")
    )
}

fn deprecated(observed: &Observed) -> String {
    match (stability(&observed.version).policy(), observed.deprecated) {
        (None, _) => "alpha versions can be retired at any time".to_owned(),
        (Some(policy), true) => {
            format!("yes; by Kubernetes' policy, {policy}: check that this is respected")
        }
        (Some(_), false) => "no".to_owned(),
    }
}

/// All steps from now on.
pub(crate) fn plan(shown: &Shown<'_>, steps: &[Step], watch: Duration, width: Option<usize>) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let mut text = "Steps:\n".to_owned();
    for (index, step) in steps.iter().enumerate() {
        wrap(&format!("{}. {}", index + 1, what(shown, step, watch)), width, &mut text);
    }
    text
}

/// One step, before it is taken, and how to undo it.
pub(crate) fn step(shown: &Shown<'_>, step: &Step, watch: Duration) -> String {
    let name = &shown.observed.crd.name;
    if step.only_reads() {
        return format!("{name}: {}", what(shown, step, watch));
    }
    format!("{name}: next: {}\n  undo: {}", what(shown, step, watch), undo(shown, step))
}

fn what(shown: &Shown<'_>, step: &Step, watch: Duration) -> String {
    let version = &shown.observed.version;
    match step {
        Step::Check { from, to } => {
            format!("convert every object from {} to {to} and back, and compare", from.join(", "))
        }
        Step::SetStorage { to } => format!("make {to} the storage version"),
        Step::Rewrite => "rewrite all objects, verify that, and prune storedVersions".to_owned(),
        Step::WatchRequests => format!("count requests for {version} for {}s", watch.as_secs()),
        Step::StopServing => format!("stop serving {version} (served: false): clients that use it get 404"),
        Step::MoveOwners => format!(
            "rewrite all objects, move managedFields entries of {version} to the storage version, verify that, and prune \
             storedVersions"
        ),
        Step::Drop => format!("drop {version} from the CRD"),
        Step::Done => "nothing is left to do".to_owned(),
    }
}

fn undo(shown: &Shown<'_>, step: &Step) -> String {
    let Shown { observed, versions, .. } = shown;
    match step {
        Step::SetStorage { .. } | Step::StopServing => {
            let after = changed(versions, &observed.version, step);
            let patch = Value::from(edits(&after, versions));
            format!("kubectl patch crd {} --type=json -p '{patch}'", observed.crd.name)
        }
        Step::Drop => format!(
            "not possible; to keep the CRD as it is now: kubectl get crd {name} -o yaml > {name}.yaml",
            name = observed.crd.name
        ),
        Step::Check { .. } | Step::Rewrite | Step::MoveOwners | Step::WatchRequests | Step::Done => {
            "not needed: objects keep their content, and every version can still be read".to_owned()
        }
    }
}

/// The end.
pub(crate) fn done(shown: &Shown<'_>) -> String {
    let Observed { version, crd, .. } = shown.observed;
    let versions: Vec<&str> = crd.versions.iter().map(|(name, _)| name.as_str()).collect();
    format!("{}: has no version {version}; its versions are: {}", crd.name, versions.join(", "))
}

/// A change of the CRD for its source.
pub(crate) fn source_change(shown: &Shown<'_>, after: &[Value]) -> String {
    let name = &shown.observed.crd.name;
    let mut text = match shown.manager {
        Some(manager) => format!(
            "{name} is managed by {} ({}). The next change is for its source:\n",
            manager.tool, manager.evidence
        ),
        None => format!("{name}: the next change:\n"),
    };
    for before in shown.versions {
        let version = before["name"].as_str().unwrap_or_default();
        let Some(after) = after.iter().find(|one| one["name"] == version) else {
            text.push_str("  spec.versions, this entry is removed:\n");
            for line in yaml(before).lines() {
                let _ = writeln!(text, "    -{line}");
            }
            continue;
        };
        for field in ["served", "storage"].into_iter().filter(|field| before[field] != after[field]) {
            let _ = writeln!(
                text,
                "  spec.versions, {version}:\n    -{field}: {}\n    +{field}: {}",
                before[field], after[field]
            );
        }
    }
    text
}

/// Why a gate says no, and what to do.
pub(crate) fn refusal(shown: &Shown<'_>, refusal: &Refusal) -> String {
    let name = &shown.observed.crd.name;
    match refusal {
        Refusal::Undeprecated { version, policy } => format!(
            "{refusal}\n  By Kubernetes' policy, {policy}. To begin, set deprecated: true for {version} in the CRD: clients \
             then get a warning. --undeprecated-ok retires it without that."
        ),
        Refusal::Loses { to, losses } => {
            let mut text = format!("objects would not survive being stored in {to}:\n");
            for loss in losses {
                let _ = writeln!(text, "  {loss}");
            }
            text + &format!(
                "  To see all of it, run: restow convert check {name}. Correct the conversion or these objects, and run the same \
                 command again. --lost-fields-ok goes on without this check."
            )
        }
        Refusal::Unchecked { .. } => format!(
            "{refusal}\n  Let the conversion webhook answer, and run the same command again. --lost-fields-ok goes on without this \
             check."
        ),
        Refusal::NoSuchVersion { version, .. } => format!(
            "{refusal}\n  If {version} is no typing error, it was dropped without restow: no object has managedFields entries of it, \
             and nothing is left to do."
        ),
        Refusal::Requested(Requests::Unknown(_)) => format!(
            "{refusal}\n  Grant get on the nonResourceURL /metrics and let every API server answer. If you know that \
             nobody uses the version, --ignore-requests goes on."
        ),
        Refusal::Requested(_) => format!(
            "{refusal}\n  Move these clients to another version first; the API servers' audit log names them. \
             --ignore-requests goes on all the same."
        ),
        Refusal::Owned { version, webhook: true, .. } => format!(
            "{refusal}: {}\n  If {version} were dropped now, the next write would wipe all managedFields of these objects. A webhook \
             converts, so that restow cannot move the entries. Let each Apply manager apply once through another version. \
             For Update managers, write the objects through another version with the same manager, or remove the \
             entries. Then run the same command again.",
            fields(version, shown.owners)
        ),
        Refusal::Owned { version, .. } => format!(
            "{refusal}: {}\n  If {version} were dropped now, the next write would wipe all managedFields of these objects. Something \
             still writes such entries. Find these managers, and run the same command again.",
            fields(version, shown.owners)
        ),
        Refusal::Unreadable(_) => format!(
            "{refusal}\n  They may be stored in {version}, and nobody knows who owns their fields. To see which ones, run: \
             restow migrate {name}. If the CRD lacks a version that they are stored in, add it to the CRD again.",
            version = shown.observed.version
        ),
        Refusal::StillStored(_) => {
            format!("{refusal}\n  To rewrite and prune, run: restow migrate {name} --prune-stored-versions")
        }
        Refusal::NothingServed(_) => format!("{refusal}; set served: true for the version that replaces it"),
        Refusal::WrongTarget { .. } => {
            let served = shown.observed.others.join(", ");
            format!(
                "{refusal}; other versions that it serves: {}",
                if served.is_empty() { "none" } else { &served }
            )
        }
        Refusal::OnlyVersion(_) => {
            format!("{refusal}, so it cannot be retired; to remove the resource, delete the CRD")
        }
    }
}

#[cfg(test)]
mod tests {
    use restow_core::controller::retirement::{Accepted, Survival};
    use restow_core::resource::inventory::Crd;
    use restow_core::resource::name::GroupResource;
    use serde_json::json;

    use super::*;

    fn observed() -> Observed {
        Observed {
            version: "v1beta1".to_owned(),
            crd: Crd {
                converting: false,
                name: GroupResource::parse("widgets.example.com"),
                resource_version: "5".to_owned(),
                uid: "u".to_owned(),
                generation: 3,
                storage_version: "v1beta1".to_owned(),
                versions: vec![("v1beta1".to_owned(), true), ("v1".to_owned(), true)],
                stored_versions: vec!["v1beta1".to_owned()],
                changed: None,
                webhook: false,
            },
            deprecated: true,
            to: None,
            others: vec!["v1".to_owned()],
            survival: Survival::Unchecked,
            retired: false,
            owned: 480,
            unreadable: 0,
            proof: None,
            requests: Requests::Unobserved,
            accepted: Accepted::default(),
        }
    }

    #[test]
    fn the_words_are_as_reviewed() {
        let observed = observed();
        let versions = [
            json!({"name": "v1beta1", "served": true, "storage": true, "deprecated": true}),
            json!({"name": "v1", "served": true, "storage": false}),
        ];
        let owners = FieldOwners {
            objects: 500,
            owned: 480,
            managers: [("kubectl (Update)".to_owned(), 480), ("argocd (Apply)".to_owned(), 12)].into(),
            unreadable: 0,
        };
        let manager =
            CrdManager { tool: "Helm", evidence: "its label app.kubernetes.io/managed-by: Helm".to_owned() };
        let shown =
            Shown { observed: &observed, versions: &versions, owners: &owners, manager: Some(&manager) };
        let counts = RequestCounts {
            ended: [("GET".to_owned(), 1200)].into(),
            complete: true,
            ..RequestCounts::default()
        };
        let watch = Duration::from_secs(10);
        let (steps, _) = restow_core::controller::retirement::plan(&observed);
        let mut text = usage(&shown, &Ok([("apiserver-1".to_owned(), counts)].into()), None);
        text += &usage(
            &shown,
            &Err("the metrics of apiserver-1 cannot be read: forbidden (403)".to_owned()),
            Some(80),
        );
        text += &plan(&shown, &steps, watch, Some(80));
        for one in &steps {
            let _ = writeln!(text, "{}", step(&shown, one, watch));
        }
        for one in &steps {
            text += &source_change(&shown, &changed(&versions, "v1beta1", one));
        }
        for one in [
            Refusal::OnlyVersion("v1beta1".to_owned()),
            Refusal::Undeprecated {
                version: "v1beta1".to_owned(),
                policy: stability("v1beta1").policy().unwrap(),
            },
            Refusal::WrongTarget { to: "v9".to_owned(), why: "has no such version" },
            Refusal::NothingServed("v1beta1".to_owned()),
            Refusal::NoSuchVersion {
                version: "v1betal".to_owned(),
                known: vec!["v1".to_owned(), "v1beta1".to_owned()],
            },
            Refusal::Loses {
                to: "v1".to_owned(),
                losses: vec![
                    "default/a would lose spec.color".to_owned(),
                    "and 7 objects more from v1beta1".to_owned(),
                ],
            },
            Refusal::Unchecked {
                to: "v1".to_owned(),
                why: "the conversion webhook failed: refused".to_owned(),
            },
            Refusal::Requested(Requests::Unknown("forbidden".to_owned())),
            Refusal::Requested(Requests::Some([("GET".to_owned(), 3)].into())),
            Refusal::Owned { version: "v1beta1".to_owned(), owned: 480, webhook: true },
            Refusal::Owned { version: "v1beta1".to_owned(), owned: 480, webhook: false },
            Refusal::Unreadable(2),
            Refusal::StillStored("v1beta1".to_owned()),
        ] {
            let _ = writeln!(text, "{}", refusal(&shown, &one));
        }
        text += &done(&shown);
        let taken = [Step::SetStorage { to: "v1".to_owned() }];
        let refused = Refusal::Loses {
            to: "v1".to_owned(),
            losses: vec!["default/a would lose spec.color".to_owned()],
        };
        let report = report(&observed, &owners, &taken, Some(&refused));
        let _ = write!(text, "\n{}", yaml(&report));
        crate::snapshots::check("retire", &text);
    }
}
