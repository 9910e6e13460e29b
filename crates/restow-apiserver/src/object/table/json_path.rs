//! The JSON paths of printer columns: `.spec.size`, `.list[0].a`, `.status.conditions[?(@.type=="Ready")].status`.

use serde_json::Value;

/// A path that was understood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// An item; below 0 it is counted from the end.
    Item(i64),
    All,
    /// The items in which a field compares with a value.
    Filter {
        path: Vec<Step>,
        operator: String,
        value: Option<Value>,
    },
}

impl JsonPath {
    /// Reads a path; none if it is not understood.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        steps(text.trim()).map(Self)
    }

    /// All that the path leads to.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        find(&self.0, vec![value])
    }
}

fn find<'a>(steps: &[Step], start: Vec<&'a Value>) -> Vec<&'a Value> {
    let mut found = start;
    for step in steps {
        found = found.into_iter().flat_map(|value| step.follow(value)).collect();
    }
    found
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let items = || value.as_array().map(Vec::as_slice).unwrap_or_default();
        match self {
            Self::Field(key) => value.get(key).into_iter().collect(),
            Self::Item(index) => {
                let count = i64::try_from(items().len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { index.saturating_add(count) } else { *index };
                usize::try_from(index).ok().and_then(|index| items().get(index)).into_iter().collect()
            }
            Self::All => match value {
                Value::Object(fields) => fields.values().collect(),
                _ => items().iter().collect(),
            },
            Self::Filter { path, operator, value } => items()
                .iter()
                .filter(|item| holds(&find(path, vec![item]), operator, value.as_ref()))
                .collect(),
        }
    }
}

fn holds(found: &[&Value], operator: &str, value: Option<&Value>) -> bool {
    let (Some(found), Some(value)) = (found.first(), value) else {
        return !found.is_empty() && value.is_none();
    };
    let order = found.as_f64().zip(value.as_f64()).and_then(|(one, other)| one.partial_cmp(&other));
    match operator {
        "==" => *found == value || order.is_some_and(std::cmp::Ordering::is_eq),
        "!=" => *found != value && !order.is_some_and(std::cmp::Ordering::is_eq),
        "<" => order.is_some_and(std::cmp::Ordering::is_lt),
        "<=" => order.is_some_and(std::cmp::Ordering::is_le),
        ">" => order.is_some_and(std::cmp::Ordering::is_gt),
        ">=" => order.is_some_and(std::cmp::Ordering::is_ge),
        _ => false,
    }
}

fn steps(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = closing(inner)?;
            steps.push(bracket(inner[..end].trim())?);
            rest = &inner[end + 1..];
        } else if let Some(inner) = rest.strip_prefix('.') {
            let (name, length) = field(inner);
            match name.as_str() {
                "" if inner.is_empty() || inner.starts_with('[') => {}
                "" => return None,
                "*" => steps.push(Step::All),
                _ => steps.push(Step::Field(name)),
            }
            rest = &inner[length..];
        } else {
            return None;
        }
    }
    Some(steps)
}

/// A field's name up to the next dot or bracket, and how long it was written; a backslash escapes.
fn field(text: &str) -> (String, usize) {
    let mut name = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '.' | '[' => return (name, at),
            '\\' => name.extend(letters.next().map(|(_, escaped)| escaped)),
            _ => name.push(letter),
        }
    }
    (name, text.len())
}

/// The position of the bracket that closes the first one.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0usize, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::All);
    }
    if let Some(key) = quoted(inner) {
        return Some(Step::Field(key.to_owned()));
    }
    if let Some(condition) = inner.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return filter(condition);
    }
    inner.parse().ok().map(Step::Item)
}

fn quoted(text: &str) -> Option<&str> {
    ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

fn filter(condition: &str) -> Option<Step> {
    let condition = condition.trim().strip_prefix('@')?;
    let operators = ["==", "!=", "<=", ">=", "<", ">"];
    let found = operators.iter().filter_map(|operator| Some((condition.find(operator)?, *operator))).min();
    let Some((at, operator)) = found else {
        return Some(Step::Filter { path: steps(condition.trim())?, operator: String::new(), value: None });
    };
    let literal = condition[at + operator.len()..].trim();
    let value = quoted(literal).map(Value::from).or_else(|| serde_json::from_str(literal).ok())?;
    Some(Step::Filter {
        path: steps(condition[..at].trim())?,
        operator: operator.to_owned(),
        value: Some(value),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::arbitrary::any_json;

    #[test]
    fn json_paths_select_values() {
        let object = json!({"spec": {"a": 1, "b.c": 2, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]}});
        let cases = [
            (".spec.a", vec![json!(1)]),
            (".spec.b\\.c", vec![json!(2)]),
            (".spec['b.c']", vec![json!(2)]),
            (".spec.none.deep", vec![]),
            (".spec.list[0].n", vec![json!("x")]),
            (".spec.list[-1].n", vec![json!("y")]),
            (".spec.list[9].n", vec![]),
            (".spec.list[*].v", vec![json!(1), json!(2)]),
            (".status.conditions[?(@.type==\"Ready\")].status", vec![json!("True")]),
            (".status.conditions[?(@.type=='Other')].status", vec![json!("False")]),
            (".spec.list[?(@.v>1)].n", vec![json!("y")]),
        ];
        for (path, found) in cases {
            let path = JsonPath::parse(path).unwrap();
            assert_eq!(path.find(&object), found.iter().collect::<Vec<_>>(), "{path:?}");
        }
        for odd in ["spec", ".a[", ".a[b]", "..", ".a[?(x)]"] {
            assert_eq!(JsonPath::parse(odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn no_path_panics(path in r#"[.a\[\]'"?()@=<>0-9*\\é-]{0,16}"#, value in any_json()) {
            if let Some(path) = JsonPath::parse(&path) {
                let _ = path.find(&value);
            }
        }
    }
}
