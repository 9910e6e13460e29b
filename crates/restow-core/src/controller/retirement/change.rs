//! How a step changes `spec.versions` of a CRD.

use serde_json::{Value, json};

use super::step::Step;

/// The versions after a step.
pub fn changed(versions: &[Value], version: &str, step: &Step) -> Vec<Value> {
    let mut changed = versions.to_vec();
    match step {
        Step::SetStorage { to } => {
            for one in &mut changed {
                one["storage"] = json!(one["name"] == to.as_str());
            }
        }
        Step::StopServing => {
            changed
                .iter_mut()
                .filter(|one| one["name"] == version)
                .for_each(|one| one["served"] = json!(false));
        }
        Step::Drop => changed.retain(|one| one["name"] != version),
        Step::Check { .. } | Step::Rewrite | Step::WatchRequests | Step::MoveOwners | Step::Done => {}
    }
    changed
}

/// The JSON patch that changes one list of versions to another, with tests of the names; a removed version is removed as a
/// whole. In the other direction it undoes a step, except for the removal.
pub fn edits(before: &[Value], after: &[Value]) -> Vec<Value> {
    let mut edits = Vec::new();
    for (index, one) in before.iter().enumerate() {
        let path = format!("/spec/versions/{index}");
        let test = json!({"op": "test", "path": format!("{path}/name"), "value": one["name"]});
        match after.iter().find(|other| other["name"] == one["name"]) {
            None => edits.extend([test, json!({"op": "remove", "path": path})]),
            Some(other) => {
                let differs = ["served", "storage"].into_iter().filter(|field| one[field] != other[field]);
                let mut replaced: Vec<_> = differs
                    .map(|field| json!({"op": "replace", "path": format!("{path}/{field}"), "value": other[field]}))
                    .collect();
                if !replaced.is_empty() {
                    edits.push(test);
                    edits.append(&mut replaced);
                }
            }
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(all: &[(&str, bool, bool)]) -> Vec<Value> {
        let each = |(name, served, storage): &(&str, bool, bool)| json!({"name": name, "served": served, "storage": storage, "schema": {"x": name}});
        all.iter().map(each).collect()
    }

    #[test]
    fn a_step_changes_only_its_own_fields() {
        let now = [("v1", true, false), ("v1beta1", true, true)];
        for (step, expected) in [
            (Step::SetStorage { to: "v1".to_owned() }, &[("v1", true, true), ("v1beta1", true, false)][..]),
            (Step::StopServing, &[("v1", true, false), ("v1beta1", false, true)]),
            (Step::Drop, &[("v1", true, false)]),
            (Step::Rewrite, &now),
            (Step::MoveOwners, &now),
        ] {
            assert_eq!(changed(&versions(&now), "v1beta1", &step), versions(expected), "{step:?}");
        }
    }

    #[test]
    fn edits_name_the_version_they_are_for() {
        let before = versions(&[("v1", true, false), ("v1beta1", true, true)]);
        let after = versions(&[("v1", true, true), ("v1beta1", true, false)]);
        let test = |index: usize, name: &str| json!({"op": "test", "path": format!("/spec/versions/{index}/name"), "value": name});
        let storage = |index: usize, value: bool| json!({"op": "replace", "path": format!("/spec/versions/{index}/storage"), "value": value});
        let expected = [test(0, "v1"), storage(0, true), test(1, "v1beta1"), storage(1, false)];
        assert_eq!(edits(&before, &after), expected);
        let removed = [test(1, "v1beta1"), json!({"op": "remove", "path": "/spec/versions/1"})];
        assert_eq!(edits(&before, &before[..1]), removed);
        assert!(edits(&before, &before).is_empty());
    }
}
