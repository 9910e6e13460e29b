//! Texts that rules can convert, for objects that are made from a schema.

use super::document::{Each, Part, Rule, ScalarType, Units};
use super::path::Path;

/// Texts for the string at a path of the older or the newer version. Empty if no rule asks for a special one.
pub(super) fn texts(rules: &[Rule], older: bool, path: &[String]) -> Vec<String> {
    rules.iter().find_map(|rule| of_rule(rule, older, path)).unwrap_or_default()
}

fn of_rule(rule: &Rule, older: bool, path: &[String]) -> Option<Vec<String>> {
    let is_here = |candidate: &Path| candidate.fields() == path;
    let side = |old: &'_ Path, new: &'_ Path| is_here(if older { old } else { new });
    match rule {
        Rule::Type(rule) if side(&rule.older, &rule.newer) => {
            Some(of_type(if older { rule.newer_type } else { rule.older_type }))
        }
        Rule::Quantity(Units { older: old, newer: new, .. }) if side(old, new) => {
            Some(owned(&["1Gi", "500m", "1.5", "100k", "0"]))
        }
        Rule::Duration(Units { older: old, newer: new, .. }) if side(old, new) => {
            Some(owned(&["1h30m", "90s", "250ms", "1h0m0s"]))
        }
        Rule::Split(rule) if older && is_here(&rule.older) => Some(joined(&rule.newer, &rule.separator)),
        Rule::Join(rule) if !older && is_here(&rule.newer) => Some(joined(&rule.older, &rule.separator)),
        Rule::Each(Each { older: old, newer: new, rules }) => {
            let list = if older { old } else { new }.fields();
            let below = path.strip_prefix(list)?.strip_prefix(&["[]".to_owned()])?;
            Some(texts(rules, older, below))
        }
        _ => None,
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Texts that can be read as a type.
fn of_type(scalar: ScalarType) -> Vec<String> {
    owned(match scalar {
        ScalarType::String => &["a", "", "a b"],
        ScalarType::Integer => &["0", "7", "042", "-3"],
        ScalarType::Number => &["0", "1.5", "-2", "1e3"],
        ScalarType::Boolean => &["true", "false"],
    })
}

/// Texts with all parts, and with only the first.
fn joined(parts: &[Part], separator: &str) -> Vec<String> {
    let values: Vec<_> =
        parts.iter().map(|part| of_type(part.scalar.unwrap_or(ScalarType::String))).collect();
    let first = values.first().and_then(|texts| texts.first()).cloned();
    let whole: Vec<_> = values.iter().filter_map(|texts| texts.first().cloned()).collect();
    let other: Vec<_> = values.iter().filter_map(|texts| texts.last().cloned()).collect();
    first.into_iter().chain([whole.join(separator), other.join(separator)]).collect()
}
