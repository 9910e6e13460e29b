//! Conversion by rules, for authors who write no code: a [`ConversionRules`] document does what a converter does.

mod apply;
mod check;
mod difference;
mod document;
mod expression;
mod hop;
mod path;
mod programs;
mod scalar;
mod status;
mod suggest;
mod texts;
mod units;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

pub use apply::RuleError;
pub use check::Problem;
pub use document::{
    Both, Cel, Computed, ConversionRules, ConversionRulesSpec, Each, Enum, EnumValue, HopRules, Join,
    ListAndMap, Part, Remove, Rule, ScalarType, Scale, Set, Split, TypeChange, Units,
};
pub use path::{InvalidPath, Path};
pub use status::{ConversionRulesStatus, REGISTERED, RulesInForce, ServingReplica, VALID};

use crate::hop::{Direction, Hop};
use crate::kept::pattern_text;
use crate::schema::schemas;
use crate::{Chain, Generator, version_order};
use hop::RuleHop;
use programs::Programs;

/// Makes a converter of rules, after a check against the CRD.
///
/// # Errors
/// All that is wrong with the rules.
pub fn compile(
    rules: &ConversionRulesSpec,
    definition: &CustomResourceDefinition,
) -> Result<Chain, Vec<Problem>> {
    let mut schemas = schemas(definition);
    let mut problems = check_versions(rules, definition, &schemas);
    let mut hops: Vec<Box<dyn Hop>> = Vec::new();
    for pair in &rules.hops {
        let (Some(older), Some(newer)) = (schemas.get(&pair.older), schemas.get(&pair.newer)) else {
            continue;
        };
        problems.extend(check::check(&pair_name(pair), &pair.rules, older, newer));
        hops.push(Box::new(RuleHop {
            rules: pair.clone(),
            older_schema: older.clone(),
            newer_schema: newer.clone(),
            programs: Programs::compile(&pair.rules, older, newer),
        }));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    for pair in &rules.hops {
        name_list_keys(&pair.rules, &pair.older, &pair.newer, &mut schemas);
    }
    let first = rules.hops.first().map(|pair| pair.older.clone());
    let versions = first.into_iter().chain(rules.hops.iter().map(|pair| pair.newer.clone())).collect();
    Ok(Chain::of_hops(rules.group.clone(), rules.kind.clone(), versions, schemas, hops))
}

/// A first draft of rules between all versions of a CRD, the oldest first.
pub fn suggest(definition: &CustomResourceDefinition) -> ConversionRulesSpec {
    let schemas = schemas(definition);
    let mut versions: Vec<_> = schemas.keys().cloned().collect();
    versions.sort_by(|one, other| version_order(one, other));
    let hops = versions.windows(2).map(|pair| HopRules {
        older: pair[0].clone(),
        newer: pair[1].clone(),
        rules: suggest::suggest(&schemas[&pair[0]], &schemas[&pair[1]]),
    });
    ConversionRulesSpec {
        group: definition.spec.group.clone(),
        kind: definition.spec.names.kind.clone(),
        hops: hops.collect(),
    }
}

/// Elements of a list that is a map in the other version are recognised by the key of the map.
fn name_list_keys(rules: &[Rule], older: &str, newer: &str, schemas: &mut BTreeMap<String, Value>) {
    for rule in rules {
        let (version, path, key) = match rule {
            Rule::ListToMap(rule) => (older, &rule.older, &rule.key),
            Rule::MapToList(rule) => (newer, &rule.newer, &rule.key),
            _ => continue,
        };
        let schema = schemas.get_mut(version);
        let list =
            path.fields().iter().fold(schema, |schema, field| schema?.get_mut("properties")?.get_mut(field));
        if let Some(Value::Object(list)) = list {
            list.insert("x-kubernetes-list-map-keys".to_owned(), serde_json::json!([key]));
        }
    }
}

/// Objects of every version that the schemas allow and the rules can convert. The same seed makes the same objects.
pub fn generate(rules: &ConversionRulesSpec, chain: &Chain, count: usize, seed: u64) -> Vec<(String, Value)> {
    let mut objects = Vec::new();
    for version in chain.versions() {
        let Some(schema) = chain.schema(version) else { continue };
        let texts = |path: &[String]| {
            let pairs = rules.hops.iter().filter(|pair| [&pair.older, &pair.newer].contains(&version));
            let mut texts = pairs.map(|pair| texts::texts(&pair.rules, pair.older == *version, path));
            texts.find(|texts| !texts.is_empty()).unwrap_or_default()
        };
        let mut generator = Generator::new(seed, &texts);
        let api_version = format!("{}/{version}", chain.group());
        for number in 0..count {
            let name = format!("generated-{number}");
            objects.push((name.clone(), generator.object(&api_version, chain.kind(), &name, schema)));
        }
    }
    objects
}

/// The fields that objects of a version may lose on the way to another version, because a rule accepts it.
pub fn accepted_losses(rules: &ConversionRulesSpec, from: &str, to: &str) -> Vec<String> {
    let up = version_order(from, to) == Ordering::Less;
    let pair = rules.hops.iter().find(|pair| if up { pair.older == from } else { pair.newer == from });
    let direction = if up { Direction::Up } else { Direction::Down };
    let patterns = pair.map(|pair| hop::lossy(&pair.rules, direction)).unwrap_or_default();
    patterns.iter().map(|pattern| pattern_text(pattern)).collect()
}

fn pair_name(pair: &HopRules) -> String {
    format!("{} and {}", pair.older, pair.newer)
}

/// The pairs must be a chain of all versions of the CRD, the oldest first.
fn check_versions(
    rules: &ConversionRulesSpec,
    definition: &CustomResourceDefinition,
    schemas: &BTreeMap<String, Value>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut report = |versions: String, problem: String| {
        problems.push(Problem { versions, path: None, problem, proposal: None });
    };
    let (group, kind) = (&definition.spec.group, &definition.spec.names.kind);
    if (&rules.group, &rules.kind) != (group, kind) {
        report(
            String::new(),
            format!("the rules are for {}.{}, the CRD is for {kind}.{group}", rules.kind, rules.group),
        );
    }
    for pair in &rules.hops {
        for version in [&pair.older, &pair.newer] {
            if !schemas.contains_key(version) {
                report(pair_name(pair), format!("the CRD has no version {version} with a schema"));
            }
        }
        if version_order(&pair.older, &pair.newer) != Ordering::Less {
            report(pair_name(pair), format!("{} is not newer than {}", pair.newer, pair.older));
        }
    }
    for pairs in rules.hops.windows(2) {
        if pairs[0].newer != pairs[1].older {
            report(
                pair_name(&pairs[1]),
                format!("they must begin with {}, where the pair before ends", pairs[0].newer),
            );
        }
    }
    for version in schemas.keys() {
        if !rules.hops.iter().any(|pair| [&pair.older, &pair.newer].contains(&version)) {
            report(String::new(), format!("there are no rules for version {version} of the CRD"));
        }
    }
    problems
}
