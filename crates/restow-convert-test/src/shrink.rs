//! Makes an object on which a conversion fails smaller, as long as it still fails.

use serde_json::Value;

/// How many smaller objects are tried.
const TRIES: usize = 2000;

/// The smallest object found that still fails, by leaving out fields and elements one by one.
pub(crate) fn shrink(object: Value, fails: &dyn Fn(&Value) -> bool) -> Value {
    let mut smallest = object;
    let mut tries = TRIES;
    'again: loop {
        for pointer in pointers(&smallest) {
            if tries == 0 {
                return smallest;
            }
            tries -= 1;
            let mut smaller = smallest.clone();
            remove(&mut smaller, &pointer);
            if fails(&smaller) {
                smallest = smaller;
                continue 'again;
            }
        }
        return smallest;
    }
}

#[derive(Clone, Debug)]
enum Key {
    Field(String),
    Index(usize),
}

/// All places of an object that can be left out, the outermost first. apiVersion, kind and metadata stay.
fn pointers(object: &Value) -> Vec<Vec<Key>> {
    let mut found = Vec::new();
    collect(object, &mut Vec::new(), &mut found);
    found.retain(|pointer| {
        !matches!(pointer.first(), Some(Key::Field(name)) if ["apiVersion", "kind", "metadata"].contains(&name.as_str()))
    });
    found.sort_by_key(Vec::len);
    found
}

fn collect(value: &Value, at: &mut Vec<Key>, found: &mut Vec<Vec<Key>>) {
    let children: Vec<(Key, &Value)> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (Key::Field(name.clone()), value)).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, item)| (Key::Index(index), item)).collect()
        }
        _ => return,
    };
    for (key, child) in children {
        at.push(key);
        found.push(at.clone());
        collect(child, at, found);
        at.pop();
    }
}

fn remove(object: &mut Value, pointer: &[Key]) {
    let Some((last, parents)) = pointer.split_last() else { return };
    let parent = parents.iter().try_fold(object, |value, key| match key {
        Key::Field(name) => value.get_mut(name),
        Key::Index(index) => value.get_mut(index),
    });
    match (parent, last) {
        (Some(Value::Object(fields)), Key::Field(name)) => drop(fields.remove(name)),
        (Some(Value::Array(items)), Key::Index(index)) if *index < items.len() => drop(items.remove(*index)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_makes_it_fail_is_left() {
        let object =
            json!({"kind": "W", "spec": {"a": 1, "list": [{"x": 1}, {"x": 2, "y": 3}], "b": {"c": 4}}});
        let fails = |object: &Value| {
            object["spec"]["list"].as_array().is_some_and(|list| list.iter().any(|item| item["x"] == 2))
        };
        assert_eq!(shrink(object, &fails), json!({"kind": "W", "spec": {"list": [{"x": 2}]}}));
    }
}
