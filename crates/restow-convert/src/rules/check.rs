//! Checks rules against the schemas of a CRD before they are used.

use std::fmt;

use serde_json::Value;

use super::apply::sides;
use super::difference::{Difference, differences, differences_of_elements, properties, shape, type_of};
use super::document::{Computed, Each, Enum, ListAndMap, Part, Rule, Set, TypeChange, Units};
use super::expression::{Expression, Visible};
use super::path::Path;
use super::programs::paths;
use super::suggest::{list_fits_map, rules_for, scalar, values};
use super::units::Measure;
use crate::Generator;
use crate::schema::{Schema, TEXT};

/// Something that is wrong with rules, and how it could be put right.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The pair of versions, such as `v1beta1 and v1`. Empty if it is about all of them.
    pub versions: String,
    /// The field, if it is about one.
    pub path: Option<String>,
    /// What is wrong.
    pub problem: String,
    /// A rule that would put it right.
    pub proposal: Option<Box<Rule>>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.versions.is_empty() {
            write!(f, "between {}: ", self.versions)?;
        }
        if let Some(path) = &self.path {
            write!(f, "{path}: ")?;
        }
        write!(f, "{}", self.problem)?;
        if let Some(rule) = &self.proposal {
            let rule = serde_json::to_string(rule).map_err(|_| fmt::Error)?;
            write!(f, "; for example, add the rule {rule}")?;
        }
        Ok(())
    }
}

/// All problems of the rules between two versions.
pub(super) fn check(versions: &str, rules: &[Rule], older: &Value, newer: &Value) -> Vec<Problem> {
    let mut checker = Checker { versions, prefix: String::new(), problems: Vec::new() };
    checker.check(rules, older, newer, &differences(older, newer));
    checker.problems
}

struct Checker<'a> {
    versions: &'a str,
    prefix: String,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn check(&mut self, rules: &[Rule], older: &Value, newer: &Value, differences: &[Difference<'_>]) {
        for rule in rules {
            self.check_rule(rule, older, newer);
        }
        self.check_overlaps(rules);
        self.check_sides(rules, older, newer);
        self.check_coverage(rules, differences);
    }

    fn report(&mut self, path: &Path, problem: impl Into<String>, proposal: Option<Rule>) {
        self.problems.push(Problem {
            versions: self.versions.to_owned(),
            path: Some(format!("{}{path}", self.prefix)),
            problem: problem.into(),
            proposal: proposal.map(Box::new),
        });
    }

    /// Every field that is not the same in both versions needs a rule.
    fn check_coverage(&mut self, rules: &[Rule], differences: &[Difference<'_>]) {
        let covered = |path: &Path, side: usize| {
            rules.iter().any(|rule| sides(rule)[side].iter().any(|covering| covering.covers(path)))
        };
        let uncovered: Vec<_> = differences
            .iter()
            .filter_map(|difference| {
                let older = difference
                    .older
                    .filter(|schema| !is_covered(&difference.path, schema, &|path| covered(path, 0)));
                let newer = difference
                    .newer
                    .filter(|schema| !is_covered(&difference.path, schema, &|path| covered(path, 1)));
                (older.is_some() || newer.is_some()).then(|| Difference {
                    path: difference.path.clone(),
                    older,
                    newer,
                })
            })
            .collect();
        for rule in rules_for(&uncovered) {
            let [older, newer] = sides(&rule);
            let (path, problem) = match (older.first(), newer.first()) {
                (Some(path), None) => ((*path).clone(), "the newer version has no such field"),
                (None, Some(path)) => ((*path).clone(), "the older version has no such field"),
                (Some(older), Some(newer)) if older != newer => {
                    ((*older).clone(), "the newer version has no such field")
                }
                (Some(path), Some(_)) => {
                    ((*path).clone(), "the versions have different schemas for this field")
                }
                (None, None) => continue,
            };
            self.report(&path, problem, Some(rule.clone()));
        }
    }

    /// Two rules must not write the same field: one of them would be lost.
    fn check_overlaps(&mut self, rules: &[Rule]) {
        for side in [0, 1] {
            let paths: Vec<_> = rules.iter().flat_map(|rule| sides(rule)[side].clone()).collect();
            for (place, path) in paths.iter().enumerate() {
                if paths[..place].iter().any(|other| other.covers(path) || path.covers(other)) {
                    self.report(path, "two rules are about this field", None);
                }
            }
        }
    }

    /// A field that both versions have is converted by rules on both sides, or by none.
    fn check_sides(&mut self, rules: &[Rule], older: &Value, newer: &Value) {
        for (side, other) in [(0, newer), (1, older)] {
            let covered = |path: &Path| {
                rules.iter().any(|rule| sides(rule)[1 - side].iter().any(|covering| covering.covers(path)))
            };
            for path in rules.iter().flat_map(|rule| sides(rule)[side].clone()) {
                let declared =
                    path.fields().iter().try_fold(other, |schema, field| properties(schema)?.get(field));
                if declared.is_some_and(|schema| !is_covered(path, schema, &covered)) {
                    self.report(
                        path,
                        "both versions have this field, but the rules are about only one of them",
                        None,
                    );
                }
            }
        }
    }

    fn check_rule(&mut self, rule: &Rule, older: &Value, newer: &Value) {
        let mut known = true;
        for (paths, schema, which) in
            sides(rule).into_iter().zip([older, newer]).zip(["older", "newer"]).map(|((p, s), w)| (p, s, w))
        {
            for path in paths {
                if self.at(schema, path).is_none() {
                    self.report(
                        path,
                        format!("the {which} version has no such field, but a rule is about it"),
                        None,
                    );
                    known = false;
                }
            }
        }
        if known {
            self.check_types(rule, older, newer);
        }
    }

    fn check_types(&mut self, rule: &Rule, older: &Value, newer: &Value) {
        let root = self.prefix.is_empty();
        let of = |schema: &Value, path: &Path| {
            at(root, schema, path).map_or("any".to_owned(), |schema| type_of(schema).to_owned())
        };
        match rule {
            Rule::Rename(both) | Rule::Move(both) => {
                if matches!(rule, Rule::Rename(_)) && both.older.split_last().0 != both.newer.split_last().0 {
                    self.report(&both.older, format!("{} is in another object; use move", both.newer), None);
                }
                let types = [of(older, &both.older), of(newer, &both.newer)];
                let differ = self.at(older, &both.older).map(shape) != self.at(newer, &both.newer).map(shape);
                if differ && !types.contains(&"any".to_owned()) {
                    self.report(&both.older, format!("{} has another type", both.newer), None);
                }
            }
            Rule::Default(set) | Rule::Constant(set) => self.check_set(set, older, newer),
            Rule::Remove(remove) => {
                if remove.older.is_none() && remove.newer.is_none() {
                    self.problem("a remove rule names no field");
                }
                if remove.lossy.as_ref().is_some_and(|reason| reason.trim().is_empty()) {
                    self.problem("a remove rule that is lossy gives no reason");
                }
                self.check_required(remove.older.as_ref(), older);
                self.check_required(remove.newer.as_ref(), newer);
            }
            Rule::Enum(rule) => self.check_enum(rule, older, newer),
            Rule::Type(TypeChange { older: from, newer: to, older_type, newer_type }) => {
                for (path, schema, wanted) in [(from, older, older_type), (to, newer, newer_type)] {
                    let found = of(schema, path);
                    if scalar(&found).is_some_and(|found| found != *wanted)
                        || scalar(&found).is_none() && !["int-or-string", "any"].contains(&found.as_str())
                    {
                        self.report(path, format!("its type is {found}"), None);
                    }
                }
            }
            Rule::Split(split) => {
                self.check_parts(&split.older, older, &split.newer, newer, &split.separator)
            }
            Rule::Join(join) => self.check_parts(&join.newer, newer, &join.older, older, &join.separator),
            Rule::ListToMap(rule) => {
                self.check_list_and_map(rule, (&rule.older, older), (&rule.newer, newer))
            }
            Rule::MapToList(rule) => {
                self.check_list_and_map(rule, (&rule.newer, newer), (&rule.older, older))
            }
            Rule::Wrap(both) => self.check_wrapped((&both.older, older), (&both.newer, newer)),
            Rule::Unwrap(both) => self.check_wrapped((&both.newer, newer), (&both.older, older)),
            Rule::Scale(scale) => {
                if scale.factor == 0.0 || !scale.factor.is_finite() {
                    self.report(&scale.older, "the factor must be a number other than 0", None);
                }
                self.expect(&scale.older, &of(older, &scale.older), &["integer", "number"]);
                self.expect(&scale.newer, &of(newer, &scale.newer), &["integer", "number"]);
            }
            Rule::Quantity(units) => {
                self.check_units(Measure::Quantity, units, &of(older, &units.older), &of(newer, &units.newer))
            }
            Rule::Duration(units) => {
                self.check_units(Measure::Duration, units, &of(older, &units.older), &of(newer, &units.newer))
            }
            Rule::Each(each) => self.check_each(each, older, newer),
            Rule::Cel(cel) => {
                if cel.older.is_empty() || cel.newer.is_empty() {
                    self.problem("a cel rule names no field of one of the versions; use remove");
                }
                self.check_expressions(&cel.older, (&cel.newer, newer), older);
                self.check_expressions(&cel.newer, (&cel.older, older), newer);
            }
        }
    }

    fn problem(&mut self, problem: &str) {
        let (versions, problem) = (self.versions.to_owned(), problem.to_owned());
        self.problems.push(Problem { versions, path: None, problem, proposal: None });
    }

    fn expect(&mut self, path: &Path, found: &str, wanted: &[&str]) {
        if found != "any" && !wanted.contains(&found) {
            self.report(
                path,
                format!("its type is {found}, but the rule needs {}", wanted.join(" or ")),
                None,
            );
        }
    }

    fn check_set(&mut self, set: &Set, older: &Value, newer: &Value) {
        let (path, schema) = match (&set.older, &set.newer) {
            (Some(path), None) => (path, older),
            (None, Some(path)) => (path, newer),
            _ => return self.problem("a default or constant rule names a field of exactly one version"),
        };
        let found = self.at(schema, path).map_or("any", type_of);
        let fits = match &set.value {
            Value::String(_) => ["string", "int-or-string"].contains(&found),
            Value::Bool(_) => found == "boolean",
            Value::Number(number) => {
                found == "number"
                    || ["integer", "int-or-string"].contains(&found)
                        && number.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            Value::Array(_) => found == "array",
            Value::Object(_) => ["object", "map"].contains(&found),
            Value::Null => true,
        };
        let known = self.at(schema, path).map(values).unwrap_or_default();
        let allowed = known.is_empty()
            || set.value.as_str().is_some_and(|value| known.iter().any(|known| known == value));
        if !fits && found != "any" {
            self.report(path, format!("its type is {found}, which {} is not", set.value), None);
        } else if !allowed {
            self.report(path, format!("the schema does not allow the value {}", set.value), None);
        }
    }

    /// A field that a version requires must be set by a rule, or have a default.
    fn check_required(&mut self, path: Option<&Path>, schema: &Value) {
        let Some(path) = path else { return };
        let (parents, last) = path.split_last();
        let parent = parents.iter().try_fold(schema, |schema, field| properties(schema)?.get(field));
        let required = parent.and_then(|parent| parent.get("required")?.as_array());
        let has_default = self.at(schema, path).is_some_and(|schema| schema.get("default").is_some());
        if required.is_some_and(|names| names.iter().any(|name| name == last)) && !has_default {
            self.report(path, "its version requires this field, but no rule sets it; use default", None);
        }
    }

    /// The elements of the list must be what the other version has alone.
    fn check_wrapped(&mut self, single: (&Path, &Value), list: (&Path, &Value)) {
        let (Some(value), Some(list_schema)) = (self.at(single.1, single.0), self.at(list.1, list.0)) else {
            return;
        };
        self.expect(list.0, type_of(list_schema), &["array"]);
        if list_schema.get("items").is_some_and(|items| shape(items) != shape(value))
            && type_of(value) != "any"
        {
            self.report(list.0, format!("its elements have another type than {}", single.0), None);
        }
    }

    /// Every value of both enums must have a name in the other version.
    fn check_enum(&mut self, rule: &Enum, older: &Value, newer: &Value) {
        for (path, schema) in [(&rule.older, older), (&rule.newer, newer)] {
            let found = self.at(schema, path).map_or("any", type_of);
            self.expect(path, found, &["string"]);
        }
        let all = |schema: &Value, path: &Path| self.at(schema, path).map(values).unwrap_or_default();
        let (olds, news) = (all(older, &rule.older), all(newer, &rule.newer));
        let old_names: Vec<_> = rule.values.iter().map(|pair| &pair.older).collect();
        let new_names: Vec<_> = rule.values.iter().map(|pair| &pair.newer).collect();
        for (path, values, mentioned, others) in
            [(&rule.older, &olds, old_names, &news), (&rule.newer, &news, new_names, &olds)]
        {
            let stays = |value: &String| others.is_empty() || others.contains(value);
            for value in values.iter().filter(|value| !mentioned.contains(value) && !stays(value)) {
                self.report(path, format!("the rule has no pair for the value {value}"), None);
            }
            for value in mentioned.iter().filter(|value| !values.is_empty() && !values.contains(value)) {
                self.report(path, format!("the schema does not allow the value {value}"), None);
            }
        }
    }

    fn check_parts(
        &mut self,
        whole: &Path,
        whole_schema: &Value,
        parts: &[Part],
        schema: &Value,
        separator: &str,
    ) {
        if separator.is_empty() {
            self.report(whole, "the separator is empty", None);
        }
        if parts.len() < 2 {
            self.report(whole, "there must be two parts or more", None);
        }
        self.expect(whole, self.at(whole_schema, whole).map_or("any", type_of), &["string"]);
        for part in parts {
            let wanted = part.scalar.map_or("string", |scalar| scalar.name());
            self.expect(&part.path, self.at(schema, &part.path).map_or("any", type_of), &[wanted]);
        }
    }

    /// The elements of the list, without their key, must be the values of the map.
    fn check_list_and_map(&mut self, rule: &ListAndMap, list: (&Path, &Value), map: (&Path, &Value)) {
        let ((list, list_schema), (map, map_schema)) = (list, map);
        let (Some(list_schema), Some(map_schema)) = (self.at(list_schema, list), self.at(map_schema, map))
        else {
            return;
        };
        self.expect(list, type_of(list_schema), &["array"]);
        self.expect(map, type_of(map_schema), &["map"]);
        if let (Some(item), Some(values)) = (list_schema.get("items"), map_schema.get("additionalProperties"))
            && !list_fits_map(rule, item, values)
        {
            let key = &rule.key;
            self.report(
                map,
                format!(
                    "its values are not the elements of the list without their key, a required string {key}"
                ),
                None,
            );
        }
    }

    fn check_units(&mut self, measure: Measure, units: &Units, older: &str, newer: &str) {
        let sides = [(&units.older, &units.older_unit, older), (&units.newer, &units.newer_unit, newer)];
        for (path, unit, found) in sides {
            match unit {
                Some(unit) if measure.unit(unit).is_none() => {
                    self.report(path, format!("there is no unit {unit}"), None)
                }
                Some(_) => self.expect(path, found, &["integer", "number"]),
                None => self.expect(path, found, &["string", "int-or-string"]),
            }
        }
    }

    fn check_each(&mut self, each: &Each, older: &Value, newer: &Value) {
        let element = |schema: &Value, path: &Path| {
            let schema = self.at(schema, path)?;
            let element = schema.get("items").or_else(|| schema.get("additionalProperties"))?;
            Some((type_of(schema).to_owned(), element.clone()))
        };
        let (older, newer) = match (element(older, &each.older), element(newer, &each.newer)) {
            (Some((one, older)), Some((other, newer))) if one == other => (older, newer),
            _ => {
                return self.report(
                    &each.older,
                    "each needs a list in both versions, or a map in both",
                    None,
                );
            }
        };
        if (properties(&older).is_none() || properties(&newer).is_none()) && shape(&older) != shape(&newer) {
            return self.report(
                &each.older,
                "the elements have different types, which no rule for each can change",
                None,
            );
        }
        let below = format!("{}{}[].", self.prefix, each.older);
        let prefix = std::mem::replace(&mut self.prefix, below);
        self.check(&each.rules, &older, &newer, &differences_of_elements(&older, &newer));
        self.prefix = prefix;
    }

    /// Every expression must be allowed, and have a value that fits for some object of the other version.
    fn check_expressions(&mut self, fields: &[Computed], from: (&[Computed], &Value), schema: &Value) {
        let paths = paths(from.0);
        let visible = Visible { paths: &paths, schema: Schema::new(Some(from.1)) };
        for Computed { path, value } in fields {
            let Some(text) = value else {
                self.check_required(Some(path), schema);
                continue;
            };
            let wanted = Schema::new(self.at(schema, path));
            let problem = match Expression::compile(text, visible) {
                Ok(expression) => never_fits(&expression, from.1, visible, wanted),
                Err(problem) => Some(problem),
            };
            if let Some(problem) = problem {
                self.report(path, format!("{problem}, in the expression {text}"), None);
            }
        }
    }

    fn at<'s>(&self, schema: &'s Value, path: &Path) -> Option<&'s Value> {
        at(self.prefix.is_empty(), schema, path)
    }
}

/// The schema of a field. Anything goes below a field that keeps unknown fields. `root`: the path begins at the object.
fn at<'s>(root: bool, schema: &'s Value, path: &Path) -> Option<&'s Value> {
    if root && path.fields().first().is_some_and(|field| field == "metadata") {
        let [_, field, _] = path.fields() else { return None };
        return (field == "labels" || field == "annotations").then_some(&*TEXT);
    }
    let mut at = schema;
    for field in path.fields() {
        let below =
            properties(at).and_then(|fields| fields.get(field)).or_else(|| at.get("additionalProperties"));
        match below {
            Some(below) => at = below,
            None if at.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) => {
                return Some(&Value::Null);
            }
            None => return None,
        }
    }
    Some(at)
}

/// Why an expression has no value that fits, for any of some objects that the schema allows.
fn never_fits(
    expression: &Expression,
    schema: &Value,
    visible: Visible<'_>,
    wanted: Schema<'_>,
) -> Option<String> {
    const TRIED: usize = 32;
    let mut generator = Generator::new(0, &|_| Vec::new());
    let objects = (0..TRIED).map(|_| generator.object("v1", "Tried", "tried", schema));
    let mut first = None;
    for object in objects.filter(|object| visible.has_any(object)) {
        match expression.evaluate(&object, visible, wanted) {
            Ok(_) => return None,
            Err(problem) => drop(first.get_or_insert(problem)),
        }
    }
    first
}

/// Whether a rule is about the field, or rules are about all fields below it.
fn is_covered(path: &Path, schema: &Value, covered: &dyn Fn(&Path) -> bool) -> bool {
    if covered(path) {
        return true;
    }
    properties(schema).is_some_and(|fields| {
        !fields.is_empty()
            && fields.iter().all(|(name, schema)| is_covered(&path.child(name), schema, covered))
    })
}
