//! Compares objects, and shows what differs as lines of YAML.

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

/// The lines around a difference that are shown too.
const CONTEXT: usize = 3;

/// What differs between two objects, as a person reads it. None if they are equal.
pub(crate) fn difference(expected: &Value, found: &Value) -> Option<String> {
    if expected == found {
        return None;
    }
    let shown = text_difference(&yaml(expected), &yaml(found));
    // 1 and 1.0 are written alike, and are not equal.
    Some(shown.unwrap_or_else(|| format!("- {expected}\n+ {found}")))
}

/// What differs between two texts.
pub(crate) fn text_difference(expected: &str, found: &str) -> Option<String> {
    if expected == found {
        return None;
    }
    let diff = TextDiff::from_lines(expected, found);
    let mut shown = String::new();
    for (number, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if number > 0 {
            shown.push_str("  …\n");
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            shown.push_str(&format!("{sign} {}\n", change.value().trim_end_matches('\n')));
        }
    }
    Some(shown)
}

/// The object as YAML.
pub(crate) fn yaml(object: &Value) -> String {
    serde_saphyr::to_string(object).unwrap_or_else(|_| object.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_shown_with_the_lines_around_it() {
        assert_eq!(difference(&json!({"a": 1}), &json!({"a": 1})), None);
        let shown =
            difference(&json!({"a": 1, "b": "x", "c": [1]}), &json!({"a": 1, "b": "z", "c": [1]})).unwrap();
        assert_eq!(shown, "  a: 1\n- b: x\n+ b: z\n  c:\n  - 1\n");
        let numbers = difference(&json!({"a": 1}), &json!({"a": 1.0})).unwrap();
        assert!(numbers.contains("1.0"), "{numbers}");
    }
}
