//! Whatever came back, the original can be restored; and what is restored fits into what stands there now.

use proptest::collection;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::tree::Entry;
use super::{Counterpart, Kept, fingerprint::fingerprint, restore};
use crate::schema::Schema;

fn compare(original: &Value, back: &Value) -> Option<Kept> {
    super::compare(Some(original), Some(back), Counterpart::Unknown, Schema::default())
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..3).prop_map(Value::from),
        (-3..3).prop_map(|number| Value::from(f64::from(number) / 2.0)),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let fields = collection::hash_map("[ab]|name", inner.clone(), 0..4);
        let named = collection::vec(("[a-d]", inner.clone()), 0..4).prop_map(|items| {
            items.into_iter().map(|(name, rest)| json!({"name": name, "rest": rest})).collect::<Value>()
        });
        prop_oneof![
            collection::vec(inner, 0..4).prop_map(Value::from),
            fields.prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
            named,
        ]
    })
}

/// Writes what is kept as the annotation does, and reads it again.
fn written(kept: Kept) -> Kept {
    let text = serde_json::to_string(&kept.into_entries()).unwrap();
    let entries: Vec<Entry> = serde_json::from_str(&text).unwrap();
    Kept::from_entries(entries).unwrap()
}

proptest! {
    #[test]
    fn the_original_is_restored_from_whatever_came_back(original in any_json(), back in any_json()) {
        match compare(&original, &back) {
            None => prop_assert_eq!(original, back),
            Some(kept) => prop_assert_eq!(restore(written(kept), Some(back)), Some(original)),
        }
    }

    #[test]
    fn a_value_that_somebody_set_is_not_overwritten(original in any_json(), back in any_json(), set in -9..9) {
        let set = Value::from(set);
        prop_assume!(fingerprint(&set) != fingerprint(&back));
        let object = |field: &Value| json!({"field": field});
        if let Some(kept) = compare(&object(&original), &object(&back)) {
            prop_assert_eq!(restore(written(kept), Some(object(&set))), Some(object(&set)));
        }
    }

    #[test]
    fn entries_that_restow_did_not_write_do_no_harm(entries in any_json(), current in any_json()) {
        if let Ok(entries) = serde_json::from_value::<Vec<Entry>>(entries)
            && let Some(kept) = Kept::from_entries(entries)
        {
            restore(kept, Some(current));
        }
    }
}

#[test]
fn an_entry_is_written_so_that_people_can_read_it() {
    let original =
        json!({"spec": {"a": null, "ports": [{"name": "x", "c": 1}, {"name": "y"}], "l": [{"d": 1}]}});
    let back = json!({"spec": {"ports": [{"name": "x"}], "l": [{}], "e": 2}});
    let entries = compare(&original, &back).unwrap().into_entries();
    let places: Vec<_> = entries.iter().map(Entry::place).collect();
    assert_eq!(places, ["spec.a", "spec.e", "spec.l[0].d", "spec.ports[x].c", "spec.ports[y]"]);
    assert_eq!(
        serde_json::to_value(&entries[3..]).unwrap(),
        json!([
            {"path": ["spec", "ports", {"key": {"name": "x"}}, "c"], "value": 1},
            {"path": ["spec", "ports", {"key": {"name": "y"}, "after": {"name": "x"}}], "value": {"name": "y"}},
        ])
    );
    assert_eq!(serde_json::to_value(&entries[0]).unwrap(), json!({"path": ["spec", "a"], "value": null}));
}
