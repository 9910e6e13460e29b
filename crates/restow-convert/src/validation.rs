//! Whether an object fits the schema of a version. An object that does not cannot be changed by users any more.
//!
//! Types, required fields, enums, limits, patterns and alternatives are validated. Formats and CEL rules
//! (`x-kubernetes-validations`) are not.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use regex::Regex;
use serde_json::{Map, Value};

use crate::schema::{ENVELOPE, Schema, schemas};

/// How many problems of one object are named.
const NAMED: usize = 20;

/// The schemas of a CRD, to validate objects in any of its versions.
#[derive(Debug)]
pub struct Validation {
    schemas: BTreeMap<String, Value>,
    /// Each pattern once; those that are not regular expressions here are left out.
    patterns: BTreeMap<String, Regex>,
}

/// What of an object does not fit. It never contains a value of the object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The field, such as `spec.ports[].name`; empty for the whole object.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the object" } else { &self.path };
        write!(f, "{path} {}", self.message)
    }
}

impl Validation {
    /// Reads the schemas of a CRD.
    pub fn of(definition: &CustomResourceDefinition) -> Self {
        let schemas = schemas(definition);
        let mut patterns = BTreeMap::new();
        schemas.values().for_each(|schema| collect_patterns(schema, &mut patterns));
        Self { schemas, patterns }
    }

    /// What of an object does not fit the schema of a version, after its defaults were filled in.
    pub fn problems(&self, object: &Value, version: &str) -> Vec<Problem> {
        let Some(schema) = self.schemas.get(version) else { return Vec::new() };
        let mut object = object.clone();
        if let Value::Object(fields) = &mut object {
            // API servers validate these by other rules.
            fields.retain(|name, _| !ENVELOPE.contains(&name.as_str()));
        }
        let own = without_envelope(schema);
        Schema::new(Some(&own)).fill_defaults(&mut object);
        let mut found = Vec::new();
        self.check(&own, &object, "", &mut found);
        found.sort();
        found.dedup();
        found.truncate(NAMED);
        found
    }

    /// What does not fit the new version, and was no problem of the object in the old one.
    pub fn new_problems(&self, (old, from): (&Value, &str), (new, to): (&Value, &str)) -> Vec<Problem> {
        let mut found = self.problems(new, to);
        if !found.is_empty() {
            let known = self.problems(old, from);
            found.retain(|problem| !known.contains(problem));
        }
        found
    }

    fn check(&self, schema: &Value, value: &Value, path: &str, found: &mut Vec<Problem>) {
        let mut problem = |message: String| found.push(Problem { path: path.to_owned(), message });
        if value.is_null() {
            // Other nulls are dropped before an object is validated.
            return;
        }
        if let Some(message) = wrong_type(schema, value) {
            problem(message);
            return;
        }
        if let Some(Value::Array(known)) = schema.get("enum")
            && !known.iter().any(|known| same(known, value))
        {
            problem("is not one of the values that are allowed".to_owned());
        }
        match value {
            Value::String(text) => self.check_text(schema, text).into_iter().for_each(problem),
            Value::Number(number) => check_number(schema, number).into_iter().for_each(problem),
            Value::Array(items) => {
                count(schema, items.len(), ["minItems", "maxItems"], "items").into_iter().for_each(problem);
                let below = schema.get("items").unwrap_or(&Value::Null);
                let path = format!("{path}[]");
                items.iter().for_each(|item| self.check(below, item, &path, found));
            }
            Value::Object(fields) => {
                let limits = ["minProperties", "maxProperties"];
                count(schema, fields.len(), limits, "fields").into_iter().for_each(problem);
                self.check_fields(schema, fields, path, found);
            }
            _ => {}
        }
        self.check_alternatives(schema, value, path, found);
    }

    fn check_text(&self, schema: &Value, text: &str) -> Vec<String> {
        let length = count(schema, text.chars().count(), ["minLength", "maxLength"], "characters");
        let mut problems: Vec<String> = length.into_iter().collect();
        let pattern = schema.get("pattern").and_then(Value::as_str);
        if let Some(pattern) = pattern
            && self.patterns.get(pattern).is_some_and(|regex| !regex.is_match(text))
        {
            problems.push(format!("does not match {pattern}"));
        }
        problems
    }

    fn check_fields(
        &self,
        schema: &Value,
        fields: &Map<String, Value>,
        path: &str,
        found: &mut Vec<Problem>,
    ) {
        let place = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let own = schema.get("properties").and_then(Value::as_object);
        let nullable = |name: &str| {
            own.and_then(|own| own.get(name)?.get("nullable"))
                .is_some_and(|nullable| *nullable == Value::Bool(true))
        };
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if fields.get(name).is_none_or(|value| value.is_null() && !nullable(name)) {
                found.push(Problem { path: place(name), message: "is required".to_owned() });
            }
        }
        let embedded = schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
        let others = schema.get("additionalProperties").filter(|others| others.is_object());
        for (name, value) in fields {
            if embedded && ENVELOPE.contains(&name.as_str()) {
                continue;
            }
            match own.and_then(|own| own.get(name)) {
                Some(below) => self.check(below, value, &place(name), found),
                // The keys of a map are content, so they are not named.
                None => {
                    others.into_iter().for_each(|below| self.check(below, value, &place("*"), found));
                }
            }
        }
    }

    fn check_alternatives(&self, schema: &Value, value: &Value, path: &str, found: &mut Vec<Problem>) {
        let all = |name: &str| schema.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let fits = |schema: &Value| {
            let mut problems = Vec::new();
            self.check(schema, value, path, &mut problems);
            problems.is_empty()
        };
        for schema in all("allOf") {
            self.check(&schema, value, path, found);
        }
        let (any, one) = (all("anyOf"), all("oneOf"));
        let mut problem =
            |message: &str| found.push(Problem { path: path.to_owned(), message: message.to_owned() });
        if !any.is_empty() && !any.iter().any(fits) {
            problem("fits none of the alternatives (anyOf)");
        }
        if !one.is_empty() && one.iter().filter(|schema| fits(schema)).count() != 1 {
            problem("does not fit exactly one of the alternatives (oneOf)");
        }
        if schema.get("not").is_some_and(|not| not.is_object() && fits(not)) {
            problem("has a form that is not allowed (not)");
        }
    }
}

/// The schema of an object without what API servers validate by other rules.
fn without_envelope(schema: &Value) -> Value {
    let mut own = schema.clone();
    if let Some(fields) = own.get_mut("properties").and_then(Value::as_object_mut) {
        fields.retain(|name, _| !ENVELOPE.contains(&name.as_str()));
    }
    if let Some(required) = own.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !name.as_str().is_some_and(|name| ENVELOPE.contains(&name)));
    }
    own
}

fn collect_patterns(schema: &Value, patterns: &mut BTreeMap<String, Regex>) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(pattern)) = fields.get("pattern")
                && let Ok(regex) = Regex::new(pattern)
            {
                patterns.insert(pattern.clone(), regex);
            }
            fields.values().for_each(|below| collect_patterns(below, patterns));
        }
        Value::Array(items) => items.iter().for_each(|below| collect_patterns(below, patterns)),
        _ => {}
    }
}

fn wrong_type(schema: &Value, value: &Value) -> Option<String> {
    let is_integer = value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|it| it.fract() == 0.0);
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        let fits = value.is_string() || is_integer;
        return (!fits).then(|| "is neither an integer nor a string".to_owned());
    }
    let wanted = schema.get("type").and_then(Value::as_str)?;
    let fits = match wanted {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => is_integer,
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    (!fits).then(|| format!("is not of type {wanted}"))
}

fn check_number(schema: &Value, number: &serde_json::Number) -> Vec<String> {
    let Some(number) = number.as_f64() else { return Vec::new() };
    let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
    let exclusive = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    let mut problems = Vec::new();
    if let Some(least) = limit("minimum")
        && (number < least || (exclusive("exclusiveMinimum") && number <= least))
    {
        problems.push(format!("is less than {least} allows"));
    }
    if let Some(most) = limit("maximum")
        && (number > most || (exclusive("exclusiveMaximum") && number >= most))
    {
        problems.push(format!("is more than {most} allows"));
    }
    if let Some(factor) = limit("multipleOf")
        && (number / factor).fract() != 0.0
    {
        problems.push(format!("is not a multiple of {factor}"));
    }
    problems
}

/// Whether there are too few or too many of something.
fn count(schema: &Value, count: usize, [least, most]: [&str; 2], what: &str) -> Option<String> {
    let limit = |name: &str| schema.get(name).and_then(Value::as_u64);
    let count = count as u64;
    match (limit(least), limit(most)) {
        (Some(least), _) if count < least => Some(format!("has fewer than {least} {what}")),
        (_, Some(most)) if count > most => Some(format!("has more than {most} {what}")),
        _ => None,
    }
}

fn same(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn validation(v1: &Value, v2: &Value) -> Validation {
        let schema = |spec: &Value| {
            json!({"openAPIV3Schema": {
                "type": "object", "required": ["metadata", "spec"],
                "properties": {"metadata": {"type": "object"}, "spec": spec},
            }})
        };
        let crd = json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": schema(v1)},
                    {"name": "v2", "served": true, "storage": false, "schema": schema(v2)},
                ],
            },
        });
        Validation::of(&serde_json::from_value(crd).unwrap())
    }

    fn problems(schema: &Value, spec: &Value) -> Vec<String> {
        let object = json!({"apiVersion": "e/v2", "kind": "Widget", "metadata": {"name": 3}, "spec": spec});
        validation(&json!({}), schema).problems(&object, "v2").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_does_not_fit_is_named_by_field_and_without_values() {
        let field = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
        for (schema, spec, expected) in [
            (json!({"type": "object"}), json!(3), "spec is not of type object"),
            (json!({"type": "object", "required": ["a"]}), json!({}), "spec.a is required"),
            (json!({"type": "object", "required": ["a"]}), json!({"a": null}), "spec.a is required"),
            (field(json!({"type": "integer"})), json!({"a": "secret"}), "spec.a is not of type integer"),
            (field(json!({"type": "integer"})), json!({"a": 1.5}), "spec.a is not of type integer"),
            (
                field(json!({"x-kubernetes-int-or-string": true})),
                json!({"a": true}),
                "spec.a is neither an integer nor a string",
            ),
            (
                field(json!({"type": "string", "enum": ["x"]})),
                json!({"a": "y"}),
                "spec.a is not one of the values that are allowed",
            ),
            (
                field(json!({"type": "string", "maxLength": 2})),
                json!({"a": "ééé"}),
                "spec.a has more than 2 characters",
            ),
            (
                field(json!({"type": "string", "pattern": "^[a-z]+$"})),
                json!({"a": "B"}),
                "spec.a does not match ^[a-z]+$",
            ),
            (
                field(json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true})),
                json!({"a": 1}),
                "spec.a is less than 1 allows",
            ),
            (
                field(json!({"type": "integer", "maximum": 9})),
                json!({"a": 10}),
                "spec.a is more than 9 allows",
            ),
            (
                field(json!({"type": "integer", "multipleOf": 5})),
                json!({"a": 7}),
                "spec.a is not a multiple of 5",
            ),
            (
                field(json!({"type": "array", "minItems": 2})),
                json!({"a": [1]}),
                "spec.a has fewer than 2 items",
            ),
            (
                field(json!({"type": "array", "items": {"type": "string"}})),
                json!({"a": ["x", 1, 2]}),
                "spec.a[] is not of type string",
            ),
            (
                field(json!({"type": "object", "additionalProperties": {"type": "string"}})),
                json!({"a": {"key": 1}}),
                "spec.a.* is not of type string",
            ),
            (
                field(json!({"type": "object", "maxProperties": 1})),
                json!({"a": {"x": 1, "y": 2}}),
                "spec.a has more than 1 fields",
            ),
            (
                json!({"type": "object", "anyOf": [{"required": ["x"]}, {"required": ["y"]}]}),
                json!({}),
                "spec fits none of the alternatives (anyOf)",
            ),
            (
                json!({"type": "object", "oneOf": [{"required": ["x"]}, {"required": ["y"]}]}),
                json!({"x": 1, "y": 1}),
                "spec does not fit exactly one of the alternatives (oneOf)",
            ),
            (
                json!({"type": "object", "not": {"required": ["x"]}}),
                json!({"x": 1}),
                "spec has a form that is not allowed (not)",
            ),
            (json!({"type": "object", "allOf": [{"required": ["x"]}]}), json!({}), "spec.x is required"),
        ] {
            assert_eq!(problems(&schema, &spec), [expected], "{schema} {spec}");
        }
    }

    #[test]
    fn what_an_api_server_accepts_is_no_problem() {
        let field = |schema: Value| json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
        for (schema, spec) in [
            (field(json!({"type": "integer", "default": 3})), json!({})),
            (field(json!({"type": "integer"})), json!({"a": 3.0})),
            (field(json!({"type": "integer", "nullable": true})), json!({"a": null})),
            (field(json!({"type": "number", "enum": [1]})), json!({"a": 1.0})),
            (field(json!({"x-kubernetes-int-or-string": true})), json!({"a": "50%"})),
            (field(json!({"type": "string", "pattern": "(?<!x)"})), json!({"a": "no such pattern here"})),
            (field(json!({"x-kubernetes-preserve-unknown-fields": true})), json!({"a": {"any": [1, "x"]}})),
            (
                field(json!({"type": "object", "x-kubernetes-embedded-resource": true,
                    "properties": {"metadata": {"type": "object", "maxProperties": 0}}})),
                json!({"a": {"metadata": {"name": "x"}}}),
            ),
        ] {
            assert_eq!(problems(&schema, &spec), [""; 0], "{schema} {spec}");
        }
    }

    #[test]
    fn only_what_the_new_version_makes_a_problem_counts() {
        let schema =
            |most: u64| json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": most}}});
        let object =
            |version: &str, a: &str| json!({"apiVersion": version, "metadata": {}, "spec": {"a": a}});
        for (old, new, text, expected) in
            [(9, 3, "long", 1), (9, 9, "long", 0), (3, 3, "long", 0), (3, 9, "long", 0)]
        {
            let validation = validation(&schema(old), &schema(new));
            let (before, after) = (object("e/v1", text), object("e/v2", text));
            let found = validation.new_problems((&before, "v1"), (&after, "v2"));
            assert_eq!(found.len(), expected, "{old} {new}");
        }
    }
}
