//! Merge patches (RFC 7386).

use serde_json::{Map, Value};

use crate::http::status::{StatusError, golang};

/// Merges a patch into an object. A patch that is no object is refused.
pub(crate) fn apply(object: &Value, patch: &Value) -> Result<Value, StatusError> {
    match patch {
        Value::Object(_) => Ok(merge(object.clone(), patch)),
        _ => Err(StatusError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            golang::kind(patch)
        ))),
    }
}

/// Merges a patch: null removes, objects merge, everything else replaces.
pub(crate) fn merge(target: Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else { return patch.clone() };
    let mut fields = match target {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            let before = fields.remove(key).unwrap_or(Value::Null);
            fields.insert(key.clone(), merge(before, change));
        }
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::arbitrary::any_json;

    #[test]
    fn merge_patches_follow_the_table_of_rfc_7386() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (target, patch, merged) in cases {
            assert_eq!(merge(target, &patch), merged);
        }
    }

    #[test]
    fn a_patch_is_an_object() {
        let refusal = apply(&json!({}), &json!([1])).unwrap_err();
        assert_eq!(refusal.code(), 400);
    }

    fn without_nulls(value: &Value) -> bool {
        match value {
            Value::Null => false,
            Value::Array(_) => true,
            Value::Object(fields) => fields.values().all(without_nulls),
            _ => true,
        }
    }

    proptest! {
        #[test]
        fn merging_twice_is_merging_once(target in any_json(), patch in any_json()) {
            let once = merge(target, &patch);
            prop_assert_eq!(merge(once.clone(), &patch), once);
        }

        #[test]
        fn an_empty_patch_changes_no_object(target in any_json()) {
            prop_assume!(target.is_object());
            prop_assert_eq!(merge(target.clone(), &json!({})), target);
        }

        #[test]
        fn an_object_without_nulls_is_a_patch_to_itself(patch in any_json()) {
            prop_assume!(without_nulls(&patch));
            prop_assert_eq!(merge(Value::Null, &patch), patch);
        }
    }
}
