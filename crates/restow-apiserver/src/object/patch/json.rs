//! JSON patches (RFC 6902).

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use crate::http::status::StatusError;

/// How many operations one patch may have.
const MOST_OPERATIONS: usize = 10_000;

/// The total size of copies in one patch: as many bytes as a request can have.
const MOST_COPIED: usize = 3 * 1024 * 1024;

/// How many list items one patch may shift: all that follow an inserted or removed item.
const MOST_SHIFTED: usize = 50_000_000;

/// How deep an object may be nested between operations: deeper ones could overflow the stack.
const DEEPEST: usize = 1000;

/// How deep a parsed object can be nested.
const DEEPEST_READ: usize = 128;

/// Applies all operations of a patch, or none.
pub(crate) fn apply(object: &Value, patch: &Value) -> Result<Value, StatusError> {
    let Some(list) = patch.as_array() else {
        return Err(StatusError::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ));
    };
    if list.len() > MOST_OPERATIONS {
        return Err(StatusError::too_large(&format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
            list.len()
        )));
    }
    let operations: Patch =
        serde_json::from_value(patch.clone()).map_err(|_| StatusError::unprocessable())?;
    let mut patched = object.clone();
    let (mut copied, mut shifted) = (0, 0);
    let mut depth = DEEPEST_READ;
    for operation in &operations.0 {
        depth = depth.max(depth_after(depth, operation));
        if depth > DEEPEST {
            return Err(StatusError::unprocessable());
        }
        copied += size_of_copy(&patched, operation);
        shifted += items_shifted(&patched, operation);
        if copied > MOST_COPIED || shifted > MOST_SHIFTED {
            return Err(StatusError::unprocessable());
        }
        json_patch::patch(&mut patched, std::slice::from_ref(operation))
            .map_err(|_| StatusError::unprocessable())?;
    }
    Ok(patched)
}

/// An upper bound of the nesting after an operation.
fn depth_after(depth: usize, operation: &PatchOperation) -> usize {
    let moved = |from: usize, to: usize| to + depth.saturating_sub(from);
    match operation {
        PatchOperation::Add(add) => add.path.count() + DEEPEST_READ,
        PatchOperation::Replace(replace) => replace.path.count() + DEEPEST_READ,
        PatchOperation::Copy(copy) => moved(copy.from.count(), copy.path.count()),
        PatchOperation::Move(to) => moved(to.from.count(), to.path.count()),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => 0,
    }
}

fn size_of_copy(object: &Value, operation: &PatchOperation) -> usize {
    match operation {
        PatchOperation::Copy(copy) => {
            object.pointer(copy.from.as_str()).map_or(0, |value| value.to_string().len())
        }
        _ => 0,
    }
}

/// How many items an operation may shift.
fn items_shifted(object: &Value, operation: &PatchOperation) -> usize {
    let around = |path: &str| {
        let (list, index) = path.rsplit_once('/').unwrap_or_default();
        if index == "-" { 0 } else { object.pointer(list).and_then(Value::as_array).map_or(0, Vec::len) }
    };
    match operation {
        PatchOperation::Add(add) => around(add.path.as_str()),
        PatchOperation::Remove(remove) => around(remove.path.as_str()),
        PatchOperation::Move(moved) => around(moved.from.as_str()) + around(moved.path.as_str()),
        PatchOperation::Copy(copy) => around(copy.path.as_str()),
        PatchOperation::Replace(_) | PatchOperation::Test(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::arbitrary::any_json;

    #[test]
    fn moves_cannot_nest_without_bound() {
        let wrap = |levels: usize| {
            let once = json!([
                {"op": "add", "path": "/b", "value": {"c": {}}},
                {"op": "move", "from": "/a", "path": "/b/c/a"},
                {"op": "move", "from": "/b", "path": "/a"},
            ]);
            Value::Array(once.as_array().unwrap().iter().cycle().take(3 * levels).cloned().collect())
        };
        assert!(apply(&json!({"a": {}}), &wrap(20)).is_ok());
        assert_eq!(apply(&json!({"a": {}}), &wrap(3000)).unwrap_err().code(), 422);
    }

    #[test]
    fn operations_are_applied_in_order() {
        let object = json!({"spec": {"size": 1, "list": ["a", "c"]}});
        let patch = json!([
            {"op": "test", "path": "/spec/size", "value": 1},
            {"op": "replace", "path": "/spec/size", "value": 2},
            {"op": "add", "path": "/spec/list/1", "value": "b"},
            {"op": "add", "path": "/spec/list/-", "value": "d"},
            {"op": "copy", "from": "/spec/size", "path": "/spec/copy"},
            {"op": "move", "from": "/spec/copy", "path": "/spec/moved"},
            {"op": "add", "path": "/spec/a~1b", "value": null},
            {"op": "remove", "path": "/spec/list/0"},
        ]);
        let patched = apply(&object, &patch).unwrap();
        assert_eq!(patched, json!({"spec": {"size": 2, "list": ["b", "c", "d"], "moved": 2, "a/b": null}}));
    }

    #[test]
    fn operations_that_do_not_apply_are_refused() {
        let object = json!({"spec": {"size": 1}});
        let cases = [
            (json!([{"op": "test", "path": "/spec/size", "value": 2}]), 422),
            (json!([{"op": "remove", "path": "/spec/none"}]), 422),
            (json!([{"op": "replace", "path": "/none/none", "value": 1}]), 422),
            (json!([{"op": "odd", "path": "/spec"}]), 422),
            (json!({"spec": {}}), 400),
            (json!(vec![json!({"op": "add", "path": "/a", "value": 1}); 10_001]), 413),
        ];
        for (patch, code) in cases {
            assert_eq!(apply(&object, &patch).unwrap_err().code(), code, "{patch}");
        }
    }

    #[test]
    fn copies_cannot_grow_without_bound() {
        let object = json!({"a": ["x".repeat(1000)]});
        let patch = json!(vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 64]);
        assert_eq!(apply(&object, &patch).unwrap_err().code(), 422);
    }

    #[test]
    fn long_lists_cannot_be_shifted_without_bound() {
        let object = json!({"a": vec![0; 1_000_000]});
        for operation in [
            json!({"op": "remove", "path": "/a/0"}),
            json!({"op": "add", "path": "/a/0", "value": 1}),
            json!({"op": "move", "from": "/a/0", "path": "/a/1"}),
            json!({"op": "copy", "from": "/a/0", "path": "/a/1"}),
        ] {
            let patch = |count: usize| Value::Array(vec![operation.clone(); count]);
            assert_eq!(apply(&object, &patch(1000)).unwrap_err().code(), 422, "{operation}");
            assert!(apply(&object, &patch(10)).is_ok(), "{operation}");
        }
        let appended = json!(vec![json!({"op": "add", "path": "/a/-", "value": 1}); 1000]);
        assert!(apply(&object, &appended).is_ok());
    }

    proptest! {
        #[test]
        fn no_patch_panics(object in any_json(), patch in any_json()) {
            let _ = apply(&object, &patch);
        }
    }
}
