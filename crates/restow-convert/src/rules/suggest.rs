//! A first draft of rules from the schemas of two versions.

use serde_json::Value;

use super::difference::{Difference, differences, differences_of_elements, properties, shape, type_of};
use super::document::{Both, Each, Enum, EnumValue, ListAndMap, Remove, Rule, ScalarType, Set, TypeChange};
use super::path::Path;

/// Rules for everything that differs. What a draft cannot know is left for the author to correct.
pub(super) fn suggest(older: &Value, newer: &Value) -> Vec<Rule> {
    rules_for(&differences(older, newer))
}

/// Rules for these differences.
pub(super) fn rules_for(differences: &[Difference<'_>]) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut renamed: Vec<&Path> = Vec::new();
    let lost = || differences.iter().filter(|one| one.newer.is_none());
    for new in differences.iter().filter(|one| one.older.is_none()) {
        let candidates = lost().filter(|old| !renamed.contains(&&old.path) && could_be_renamed(old, new));
        let closest = candidates
            .max_by(|one, other| likeness(&one.path, &new.path).total_cmp(&likeness(&other.path, &new.path)));
        if let Some(old) = closest {
            renamed.extend([&old.path, &new.path]);
            let both = Both { older: old.path.clone(), newer: new.path.clone() };
            let siblings = old.path.split_last().0 == new.path.split_last().0;
            rules.push(if siblings { Rule::Rename(both) } else { Rule::Move(both) });
        }
    }
    rules.extend(differences.iter().filter(|one| !renamed.contains(&&one.path)).map(rule_for));
    rules
}

/// How alike the last fields of two paths are, from 0 to 1.
fn likeness(one: &Path, other: &Path) -> f64 {
    let [one, other] = [one, other].map(|path| path.split_last().1.to_lowercase());
    strsim::normalized_damerau_levenshtein(&one, &other)
}

fn could_be_renamed(old: &Difference<'_>, new: &Difference<'_>) -> bool {
    old.older.map(shape) == new.newer.map(shape) && likeness(&old.path, &new.path) >= 0.6
}

/// A rule for a field that is not the same in both versions.
fn rule_for(difference: &Difference<'_>) -> Rule {
    let path = || difference.path.clone();
    match (difference.older, difference.newer) {
        (Some(_), None) | (None, None) => {
            Rule::Remove(Remove { older: Some(path()), newer: None, lossy: None })
        }
        (None, Some(schema)) => match schema.get("default") {
            Some(default) => Rule::Default(Set { older: None, newer: Some(path()), value: default.clone() }),
            None => Rule::Remove(Remove { older: None, newer: Some(path()), lossy: None }),
        },
        (Some(older), Some(newer)) => change(path(), older, newer),
    }
}

/// A rule for a field that both versions have.
fn change(path: Path, older: &Value, newer: &Value) -> Rule {
    let both = || Both { older: path.clone(), newer: path.clone() };
    let (older_type, newer_type) = (type_of(older), type_of(newer));
    let fits = |list: &Value, value: &Value| list.get("items").map(shape) == Some(shape(value));
    let rule = match (older_type, newer_type) {
        ("string", "string") if !values(older).is_empty() && !values(newer).is_empty() => {
            Some(Rule::Enum(Enum { older: path.clone(), newer: path.clone(), values: pairs(older, newer) }))
        }
        ("array", "array") => each(&path, older.get("items"), newer.get("items")),
        ("map", "map") => each(&path, older.get("additionalProperties"), newer.get("additionalProperties")),
        ("array", "map") => list_and_map(&path, older, newer).map(Rule::ListToMap),
        ("map", "array") => list_and_map(&path, newer, older).map(Rule::MapToList),
        (_, "array") if fits(newer, older) => Some(Rule::Wrap(both())),
        ("array", _) if fits(older, newer) => Some(Rule::Unwrap(both())),
        _ => match (scalar(older_type), scalar(newer_type)) {
            (Some(older_type), Some(newer_type)) if older_type != newer_type => {
                Some(Rule::Type(TypeChange {
                    older: path.clone(),
                    newer: path.clone(),
                    older_type,
                    newer_type,
                }))
            }
            _ => None,
        },
    };
    // Nothing is known of how they are related; what is there is kept for the version that it belongs to.
    rule.unwrap_or_else(|| Rule::Remove(Remove { older: Some(path.clone()), newer: Some(path), lossy: None }))
}

pub(super) fn scalar(name: &str) -> Option<ScalarType> {
    match name {
        "string" => Some(ScalarType::String),
        "integer" => Some(ScalarType::Integer),
        "number" => Some(ScalarType::Number),
        "boolean" => Some(ScalarType::Boolean),
        _ => None,
    }
}

/// None if the elements are not objects with known fields.
fn each(path: &Path, older: Option<&Value>, newer: Option<&Value>) -> Option<Rule> {
    let (older, newer) = (older?, newer?);
    (properties(older).is_some() && properties(newer).is_some()).then(|| {
        let rules = rules_for(&differences_of_elements(older, newer));
        Rule::Each(Each { older: path.clone(), newer: path.clone(), rules })
    })
}

/// None if the elements of the list are not what the map has, and a key.
fn list_and_map(path: &Path, list: &Value, map: &Value) -> Option<ListAndMap> {
    let key = list.get("x-kubernetes-list-map-keys").and_then(|keys| keys.get(0)).and_then(Value::as_str);
    let key = key.unwrap_or("name");
    let (item, values) = (list.get("items")?, map.get("additionalProperties")?);
    let others: Vec<_> = properties(item)?.keys().filter(|name| *name != key).collect();
    let value = match others[..] {
        [name] if properties(values).is_none() => Some(name.clone()),
        _ => None,
    };
    let rule = ListAndMap { older: path.clone(), newer: path.clone(), key: key.to_owned(), value };
    list_fits_map(&rule, item, values).then_some(rule)
}

/// Whether the elements of a list have a key, and are the values of a map without it.
pub(super) fn list_fits_map(rule: &ListAndMap, item: &Value, values: &Value) -> bool {
    let fields = properties(item);
    let required = item.get("required").and_then(Value::as_array);
    let is_required = required.is_some_and(|names| names.iter().any(|name| *name == rule.key));
    let key = fields.and_then(|fields| fields.get(&rule.key));
    let has_key =
        key.is_some_and(|key| type_of(key) == "string" && (is_required || key.get("default").is_some()));
    let rest = match &rule.value {
        Some(value) => fields.and_then(|fields| fields.get(value)).map(shape),
        None => {
            let mut rest = shape(item);
            if let Some(Value::Object(fields)) = rest.get_mut("properties") {
                fields.remove(&rule.key);
            }
            Some(rest)
        }
    };
    has_key && rest == Some(shape(values))
}

/// The values of two enums, each with the one most like it.
fn pairs(older: &Value, newer: &Value) -> Vec<EnumValue> {
    let (older, newer) = (values(older), values(newer));
    let closest = |value: &str, among: &[String]| {
        let likeness = |other: &String| {
            strsim::normalized_damerau_levenshtein(&value.to_lowercase(), &other.to_lowercase())
        };
        among.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other))).cloned()
    };
    let up = older
        .iter()
        .filter_map(|value| Some(EnumValue { older: value.clone(), newer: closest(value, &newer)? }));
    let mut pairs: Vec<_> = up.collect();
    for value in &newer {
        if !pairs.iter().any(|pair| pair.newer == *value)
            && let Some(closest) = closest(value, &older)
        {
            pairs.push(EnumValue { older: closest, newer: value.clone() });
        }
    }
    pairs
}

/// The values of an enum.
pub(super) fn values(schema: &Value) -> Vec<String> {
    let values = schema.get("enum").and_then(Value::as_array);
    values.into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned)).collect()
}
