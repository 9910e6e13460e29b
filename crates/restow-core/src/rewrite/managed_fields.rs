//! managedFields entries of versions that are no longer served.
//!
//! If an object has an entry of a version that the API server no longer knows, the next write by any client drops all
//! managedFields of the object, and server-side apply loses its owners. A client cannot see which unserved versions a server
//! still knows, so restow sends an object with such an entry as a dry run first.

use serde_json::{Map, Value};

use crate::resource::inventory::Resource;
use crate::resource::name::GroupVersion;

/// The versions of a resource whose managedFields entries can stay.
#[derive(Clone, Debug)]
pub struct Versions {
    stay: Vec<GroupVersion>,
    /// Whether field paths are the same in all versions, according to the CRD.
    same_paths: bool,
}

/// What the dry run of a write shows about an object with entries of unserved versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRunVerdict {
    /// The write keeps all entries: send it.
    Send,
    /// The write would wipe them: leave the object alone.
    Quarantine,
}

impl Versions {
    /// The served versions of a resource.
    pub fn of(resource: &Resource) -> Self {
        // Without a webhook, the versions of a custom resource differ only in their apiVersion.
        let same_paths = !resource.crd.as_ref().is_some_and(|crd| crd.webhook);
        Self { stay: resource.served.clone(), same_paths }
    }

    /// These, except one: its entries do not stay either.
    pub fn without(mut self, version: &GroupVersion) -> Self {
        self.stay.retain(|stays| stays != version);
        self
    }

    /// Whether an entry has an apiVersion that is not served.
    pub fn goes(&self, entry: &str) -> bool {
        let (group, version) = entry.split_once('/').unwrap_or(("", entry));
        !self.stay.iter().any(|stays| stays.group == group && stays.version == version)
    }

    /// Whether entries can be moved to another version unchanged.
    pub fn can_move(&self) -> bool {
        self.same_paths
    }
}

/// The entries, with those of unserved versions moved to the version `to`.
///
/// A server keeps one entry for each manager, operation, version and subresource, so entries that become equal in these
/// are merged. None if entries cannot be merged.
pub fn moved(entries: Vec<Value>, versions: &Versions, to: &str) -> Option<Vec<Value>> {
    let mut moved: Vec<Value> = Vec::new();
    for mut entry in entries {
        if versions.goes(entry["apiVersion"].as_str()?) {
            entry["apiVersion"] = to.into();
        }
        match moved.iter_mut().find(|other| key(other) == key(&entry)) {
            Some(other) => unite(other, &entry)?,
            None => moved.push(entry),
        }
    }
    Some(moved)
}

/// What identifies an entry to an API server.
fn key(entry: &Value) -> [&str; 4] {
    ["manager", "operation", "apiVersion", "subresource"].map(|key| entry[key].as_str().unwrap_or_default())
}

/// Merges another entry into one, which gets the later time of both.
fn unite(entry: &mut Value, other: &Value) -> Option<()> {
    if [&*entry, other].iter().any(|entry| entry["fieldsType"] != "FieldsV1") {
        return None;
    }
    entry["fieldsV1"] = union(&entry["fieldsV1"], &other["fieldsV1"])?;
    // RFC 3339 in UTC without fractions, which sorts as text.
    if other["time"].as_str() > entry["time"].as_str() {
        entry["time"] = other["time"].clone();
    }
    Some(())
}

/// The union of two `fieldsV1` sets; none if one of them is malformed.
pub fn union(one: &Value, other: &Value) -> Option<Value> {
    let mut all = one.as_object()?.clone();
    for (field, below) in other.as_object()? {
        let both = match all.get(field) {
            Some(mine) => below_union(mine, below)?,
            None => below.clone(),
        };
        all.insert(field.clone(), both);
    }
    Some(Value::Object(all))
}

/// The union below a field. There, `{}` is the field itself, like `{".": {}}` beside fields below it.
fn below_union(one: &Value, other: &Value) -> Option<Value> {
    const ITSELF: &str = ".";
    let explicit = |fields: &Value| {
        let mut fields = fields.as_object()?.clone();
        if fields.is_empty() {
            fields.insert(ITSELF.to_owned(), Value::Object(Map::new()));
        }
        Some(fields)
    };
    let (mut all, more) = (explicit(one)?, explicit(other)?);
    for (field, below) in more {
        let both = match all.get(&field) {
            Some(_) if field == ITSELF => continue,
            Some(mine) => below_union(mine, &below)?,
            None => below,
        };
        all.insert(field, both);
    }
    if all.len() == 1 && all.contains_key(ITSELF) {
        all.clear();
    }
    Some(Value::Object(all))
}

/// Decides by the number of entries before and after a dry run of the write.
pub fn dry_run_verdict(before: usize, after: usize) -> DryRunVerdict {
    if after < before { DryRunVerdict::Quarantine } else { DryRunVerdict::Send }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn versions() -> Versions {
        let stay = vec![GroupVersion::parse("example.com/v2"), GroupVersion::parse("v1")];
        Versions { stay, same_paths: true }
    }

    #[test]
    fn entries_of_served_versions_are_kept() {
        for (entry, goes) in [
            ("example.com/v2", false),
            ("v1", false),
            ("example.com/v1", true),
            ("v2", true),
            ("other/v2", true),
        ] {
            assert_eq!(versions().goes(entry), goes, "{entry}");
        }
    }

    #[test]
    fn a_write_that_loses_entries_is_not_sent() {
        for (before, after, expected) in [
            (2, 2, DryRunVerdict::Send),
            (2, 3, DryRunVerdict::Send),
            (2, 1, DryRunVerdict::Quarantine),
            (1, 0, DryRunVerdict::Quarantine),
        ] {
            assert_eq!(dry_run_verdict(before, after), expected);
        }
    }

    fn entry(manager: &str, operation: &str, version: &str, time: &str, fields: Value) -> Value {
        json!({
            "manager": manager, "operation": operation, "apiVersion": format!("example.com/{version}"),
            "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    }

    #[test]
    fn entries_that_become_equal_are_merged() {
        let of = |version, time, fields| entry("team", "Update", version, time, fields);
        let early = "2026-01-01T00:00:00Z";
        let late = "2026-02-01T00:00:00Z";
        let [a, b, both] = [json!({"f:a": {}}), json!({"f:b": {}}), json!({"f:a": {}, "f:b": {}})];
        let status = |version, fields| {
            let mut entry = of(version, early, fields);
            entry["subresource"] = "status".into();
            entry
        };
        let other = |version| entry("other", "Update", version, early, a.clone());
        let apply = |version| entry("team", "Apply", version, early, a.clone());
        for (what, before, after) in [
            ("one is moved", vec![of("v1", early, a.clone())], vec![of("v2", early, a.clone())]),
            (
                "the later time is kept",
                vec![of("v1", late, a.clone()), of("v2", early, b.clone())],
                vec![of("v2", late, both.clone())],
            ),
            (
                "in either order",
                vec![of("v2", early, b.clone()), of("v1", late, a.clone())],
                vec![of("v2", late, both.clone())],
            ),
            (
                "three become one",
                vec![of("v1", early, a.clone()), of("v2", early, b.clone()), of("v0", early, b.clone())],
                vec![of("v2", early, both.clone())],
            ),
            (
                "another subresource is another entry",
                vec![of("v1", early, a.clone()), status("v1", a.clone()), status("v2", b.clone())],
                vec![of("v2", early, a.clone()), status("v2", both.clone())],
            ),
            (
                "another manager or operation is another entry",
                vec![of("v1", early, a.clone()), other("v2"), apply("v1")],
                vec![of("v2", early, a.clone()), other("v2"), apply("v2")],
            ),
        ] {
            let moved = moved(before, &versions(), "example.com/v2");
            assert_eq!(moved, Some(after), "{what}");
        }
    }

    #[test]
    fn malformed_entries_are_not_merged() {
        let of = |version| entry("team", "Update", version, "", json!({"f:a": {}}));
        for (key, value) in [("fieldsType", json!("FieldsV2")), ("fieldsV1", json!("f:a"))] {
            let mut odd = of("v1");
            odd[key] = value;
            assert_eq!(moved(vec![of("v2"), odd.clone()], &versions(), "example.com/v2"), None, "{key}");
            assert!(moved(vec![odd], &versions(), "example.com/v2").is_some(), "alone it is moved as it is");
        }
    }

    /// The paths of all fields in a set.
    fn members(fields: &Value) -> BTreeSet<String> {
        fn below(fields: &Value, path: &str, members: &mut BTreeSet<String>) {
            let fields = fields.as_object().unwrap();
            if fields.is_empty() {
                members.insert(path.to_owned());
            }
            for (field, more) in fields {
                if field == "." {
                    members.insert(path.to_owned());
                } else {
                    below(more, &format!("{path}/{field}"), members);
                }
            }
        }
        let mut members = BTreeSet::new();
        for (field, more) in fields.as_object().unwrap() {
            below(more, field, &mut members);
        }
        members
    }

    /// Sets of fields as servers write them.
    fn fields() -> impl Strategy<Value = Value> {
        let leaf = Just(json!({}));
        let below = leaf.prop_recursive(4, 32, 4, |inner| {
            let named = prop::collection::btree_map("(f:[abc]|k:\\{1\\}|v:[12])", inner, 1..4);
            (named, any::<bool>()).prop_map(|(fields, itself)| {
                let mut fields: Map<String, Value> = fields.into_iter().collect();
                if itself {
                    fields.insert(".".to_owned(), json!({}));
                }
                Value::Object(fields)
            })
        });
        prop::collection::btree_map("f:[abc]", below, 0..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn a_union_has_the_fields_of_both(one in fields(), other in fields()) {
            let union_of = union(&one, &other).unwrap();
            let expected: BTreeSet<_> = members(&one).union(&members(&other)).cloned().collect();
            prop_assert_eq!(members(&union_of), expected);
            prop_assert_eq!(union(&other, &one), Some(union_of.clone()));
            prop_assert_eq!(union(&union_of, &one), Some(union_of));
        }

        #[test]
        fn merging_entries_loses_no_field(sets in prop::collection::vec((0usize..2, 0usize..3, fields()), 0..6)) {
            let entries = sets.iter().map(|(manager, version, fields)| {
                entry(["a", "b"][*manager], "Update", ["v0", "v1", "v2"][*version], "", fields.clone())
            });
            let moved = moved(entries.collect(), &versions(), "example.com/v2").unwrap();
            let mut keys: Vec<_> = moved.iter().map(key).collect();
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), moved.len());
            for (index, manager) in ["a", "b"].iter().enumerate() {
                let own = |entries: Vec<&Value>| entries.into_iter().flat_map(members).collect::<BTreeSet<_>>();
                let before = sets.iter().filter(|set| set.0 == index).map(|set| &set.2).collect();
                let after = moved.iter().filter(|entry| entry["manager"] == *manager);
                prop_assert_eq!(own(before), own(after.map(|entry| &entry["fieldsV1"]).collect()));
            }
        }
    }
}
