//! Validates a value against its schema, with the messages and in the order of kube-apiserver.

use std::collections::HashSet;

use serde_json::{Number, Value, json};

use super::lists::Counterparts;
use super::model::{Additional, Limits, Schema};
use super::path::child;
use crate::http::status::golang::{quote, show_float, show_number};
use crate::http::status::{Cause, MOST_CAUSES};
use crate::object::path::Path;

/// The errors of a value. `place` is the path of the value, for the fields of the causes; their messages name paths
/// within the value.
pub(super) fn causes(schema: &Schema, value: &Value, old: Option<&Value>, place: &str) -> Vec<Cause> {
    let mut result = Findings::default();
    check(schema, value, old, &At { path: Path::default(), place }, &mut result);
    result.causes
}

/// The errors, and how many checks passed: of several alternatives, the errors of the nearest one are reported.
#[derive(Default)]
struct Findings {
    causes: Vec<Cause>,
    seen: HashSet<Cause>,
    passed: usize,
}

impl Findings {
    /// Adds an error, without duplicates.
    fn push(&mut self, cause: Cause) {
        if !self.is_full() && self.seen.insert(cause.clone()) {
            self.causes.push(cause);
        }
    }

    /// Whether there are more errors than are reported: one more shows that some were left out.
    fn is_full(&self) -> bool {
        self.causes.len() > MOST_CAUSES
    }

    fn merge(&mut self, other: Self) {
        other.causes.into_iter().for_each(|cause| self.push(cause));
        self.passed += other.passed;
    }
}

/// The path of a value.
struct At<'a> {
    path: Path<'a>,
    place: &'a str,
}

impl At<'_> {
    fn within<'b>(&'b self, key: &'b str) -> At<'b> {
        At { path: self.path.field(key), place: self.place }
    }

    fn item(&self, index: usize) -> At<'_> {
        At { path: self.path.item(index), place: self.place }
    }

    fn field(&self) -> String {
        match (self.place, self.path.is_root()) {
            ("", true) => "<nil>".to_owned(),
            (place, true) => place.to_owned(),
            (place, false) => child(place, &self.path.to_string()),
        }
    }

    fn invalid(&self, value: &Value, words: &str) -> Cause {
        Cause::invalid(self.field(), value, &format!("{} in body {words}", self.path))
    }

    /// An error of alternatives, which has no field.
    fn composite(&self, words: &str) -> Cause {
        let field = if self.place.is_empty() { "<nil>" } else { self.place };
        Cause::invalid(field, &json!(""), &format!("{} {words}", quote(&self.path.to_string())))
    }
}

fn check(schema: &Schema, value: &Value, old: Option<&Value>, at: &At<'_>, found: &mut Findings) {
    // Unchanged values are not validated again.
    if old == Some(value) || found.is_full() {
        return;
    }
    check_type(schema, value, at, found);
    let limits = &schema.limits;
    if value.is_null() {
        return check_values(limits, value, at, found);
    }
    check_alternatives(limits, value, old, at, found);
    match value {
        Value::String(text) => check_text(limits, text, at, found),
        Value::Number(number) => check_number(schema, number, at, found),
        Value::Array(items) => check_items(schema, items, old, at, found),
        _ => {}
    }
    check_values(limits, value, at, found);
    if let Value::Object(fields) = value {
        check_fields(schema, fields, old, at, found);
    }
    found.passed += 1;
}

/// The types a schema allows; none if any is.
fn types(schema: &Schema) -> Vec<&str> {
    if schema.int_or_string {
        return vec!["integer", "string"];
    }
    schema.kind.as_deref().into_iter().collect()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_type(schema: &Schema, value: &Value, at: &At<'_>, found: &mut Findings) {
    let types = types(schema);
    if types.is_empty() || (value.is_null() && schema.nullable) {
        found.passed += 1;
        return;
    }
    let own = type_of(value);
    let whole = value.as_f64().is_some_and(is_whole);
    let fits = types.contains(&own)
        || (own == "integer" && types.contains(&"number"))
        || (own == "number" && whole && types.contains(&"integer"));
    if fits {
        found.passed += 1;
        return;
    }
    // A format replaces the type in the message; strings and lists have no number format.
    let (wanted, own) = match &schema.limits.format {
        Some(format) if !value.is_string() && !value.is_array() && !value.is_null() => {
            (format.text.clone(), format_of(value))
        }
        _ => (types.join(","), own),
    };
    let words = format!("{} in body must be of type {wanted}: {}", at.path, quote(own));
    found.push(Cause::type_invalid(at.field(), &json!(own), &words));
}

/// Whether a number is an integer that JSON keeps exactly.
fn is_whole(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_991.0
}

fn format_of(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        _ => "",
    }
}

fn check_values(limits: &Limits, value: &Value, at: &At<'_>, found: &mut Findings) {
    let known = &limits.one_of_values;
    if known.is_empty() || (!value.is_null() && known.iter().any(|known| same(known, value))) {
        found.passed += 1;
        return;
    }
    let shown: Vec<_> =
        known.iter().map(|known| known.as_str().map_or_else(|| known.to_string(), str::to_owned)).collect();
    let shown: Vec<_> = shown.iter().map(String::as_str).collect();
    found.push(Cause::not_supported(at.field(), value, &shown));
}

fn same(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| one == other)
}

fn check_text(limits: &Limits, text: &str, at: &At<'_>, found: &mut Findings) {
    let length = text.chars().count() as u64;
    let value = || json!(text);
    if let Some(most) = limits.max_length.filter(|most| length > *most) {
        found.push(Cause::too_long(at.field(), usize::try_from(most).unwrap_or(usize::MAX)));
    } else if let Some(least) = limits.min_length.filter(|least| length < *least) {
        found.push(at.invalid(&value(), &format!("should be at least {least} chars long")));
    } else if let Some(pattern) = &limits.pattern {
        match pattern.is_in(text) {
            Ok(true) => {}
            Ok(false) => found.push(at.invalid(&value(), &format!("should match '{}'", pattern.text))),
            Err(why) => {
                let words = format!("should match '{}, but pattern is invalid: {why}'", pattern.text);
                found.push(at.invalid(&value(), &words));
            }
        }
    }
    found.passed += 1;
    if let Some(format) = limits.format.as_ref().filter(|format| !format.fits(text)) {
        let words = format!("{} in body must be of type {}: {}", at.path, format.text, quote(text));
        found.push(Cause::type_invalid(at.field(), &value(), &words));
    }
}

fn check_number(schema: &Schema, number: &Number, at: &At<'_>, found: &mut Findings) {
    let limits = &schema.limits;
    let Some(float) = number.as_f64() else { return };
    let value = Value::Number(number.clone());
    if let Some(words) = out_of_range(schema, number) {
        let field = if at.place.is_empty() { "<nil>" } else { at.place };
        found.push(Cause::invalid(field, &json!(""), &format!("{words} in {}", at.path)));
    }
    if let Some(factor) = limits.multiple_of.filter(|factor| (float / factor).fract() != 0.0) {
        found.push(at.invalid(&value, &format!("should be a multiple of {}", bound(factor, number))));
    }
    if let Some(least) = limits.minimum
        && (float < least || (limits.exclusive_minimum && float == least))
    {
        let or_equal = if limits.exclusive_minimum { "" } else { " or equal to" };
        let words = format!("should be greater than{or_equal} {}", bound(least, number));
        found.push(at.invalid(&value, &words));
    }
    if let Some(most) = limits.maximum
        && (float > most || (limits.exclusive_maximum && float == most))
    {
        let or_equal = if limits.exclusive_maximum { "" } else { " or equal to" };
        found.push(at.invalid(&value, &format!("should be less than{or_equal} {}", bound(most, number))));
    }
    found.passed += 1;
}

/// The error of a number that is out of the range of its type and format.
fn out_of_range(schema: &Schema, number: &Number) -> Option<String> {
    let kind = schema.kind.as_deref()?;
    let format = schema.limits.format.as_ref();
    let fraction = kind == "integer" && !number.is_i64() && !number.as_f64().is_some_and(is_whole);
    let large = format.is_some_and(|format| !format.holds(number));
    (fraction || large).then(|| match format {
        Some(format) => format!("Checked value must be of type {kind} with format {}", format.text),
        None => format!("Checked value must be of type {kind} (default format)"),
    })
}

/// A limit, formatted like the number it is compared with.
fn bound(limit: f64, number: &Number) -> String {
    if number.is_f64() {
        return show_float(limit);
    }
    #[allow(clippy::cast_possible_truncation, reason = "kube-apiserver cuts the limit of an integer, too")]
    show_number(&Number::from(limit as i64))
}

fn check_items(schema: &Schema, items: &[Value], old: Option<&Value>, at: &At<'_>, found: &mut Findings) {
    if let Some(items_schema) = &schema.items {
        let before = Counterparts::new(&schema.list, old);
        for (index, item) in items.iter().enumerate() {
            if found.is_full() {
                return;
            }
            check(items_schema, item, before.of(item), &at.item(index), found);
        }
    }
    let count = items.len() as u64;
    if let Some(least) = schema.limits.min_items.filter(|least| count < *least) {
        found.push(at.invalid(&json!(count), &format!("should have at least {least} items")));
    }
    if let Some(most) = schema.limits.max_items.filter(|most| count > *most) {
        found.push(Cause::too_many(at.field(), items.len(), usize::try_from(most).unwrap_or(usize::MAX)));
    }
    found.passed += 1;
}

fn check_fields(
    schema: &Schema,
    fields: &serde_json::Map<String, Value>,
    old: Option<&Value>,
    at: &At<'_>,
    found: &mut Findings,
) {
    let limits = &schema.limits;
    let count = fields.len() as u64;
    if let Some(least) = limits.min_properties.filter(|least| count < *least) {
        found.push(at.invalid(&json!(count), &format!("should have at least {least} properties")));
    }
    if let Some(most) = limits.max_properties.filter(|most| count > *most) {
        found.push(Cause::too_many(at.field(), fields.len(), usize::try_from(most).unwrap_or(usize::MAX)));
    }
    let before = |key: &str| old.and_then(|old| old.get(key));
    for (key, value) in fields.iter().filter(|(key, _)| !schema.properties.contains_key(*key)) {
        match schema.additional.as_deref() {
            Some(Additional::Schema(schema)) => check(schema, value, before(key), &at.within(key), found),
            Some(Additional::Any(false)) => {
                let words = format!("{}.{key} in body is a forbidden property", at.path);
                found.push(Cause::invalid(at.field(), &json!(key), &words));
            }
            _ => {}
        }
    }
    for (key, schema) in &schema.properties {
        if let Some(value) = fields.get(key) {
            check(schema, value, before(key), &at.within(key), found);
        }
    }
    for key in limits.required.iter().filter(|key| !fields.contains_key(*key)) {
        found.push(Cause::required(at.within(key).field(), ""));
    }
}

fn check_alternatives(
    limits: &Limits,
    value: &Value,
    old: Option<&Value>,
    at: &At<'_>,
    found: &mut Findings,
) {
    let tried = |schemas: &[Schema]| -> Vec<Findings> {
        let one = |schema| {
            let mut findings = Findings::default();
            check(schema, value, old, at, &mut findings);
            findings
        };
        schemas.iter().map(one).collect()
    };
    if !limits.any_of.is_empty() {
        any_of(tried(&limits.any_of), at, found);
    }
    if !limits.one_of.is_empty() {
        one_of(tried(&limits.one_of), at, found);
    }
    if !limits.all_of.is_empty() {
        let results = tried(&limits.all_of);
        let valid = results.iter().filter(|result| result.causes.is_empty()).count();
        let all = valid == results.len();
        results.into_iter().for_each(|result| found.merge(result));
        if !all {
            let none = if valid == 0 { ". None validated" } else { "" };
            found.push(at.composite(&format!("must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(not) = &limits.not {
        let mut findings = Findings::default();
        check(not, value, None, at, &mut findings);
        if findings.causes.is_empty() {
            found.push(at.composite("must not validate the schema (not)"));
        }
    }
    found.passed += 1;
}

fn any_of(results: Vec<Findings>, at: &At<'_>, found: &mut Findings) {
    let none = results.iter().all(|result| !result.causes.is_empty());
    if none {
        found.push(at.composite("must validate at least one schema (anyOf)"));
        found.merge(nearest(results));
    }
}

fn one_of(results: Vec<Findings>, at: &At<'_>, found: &mut Findings) {
    match results.iter().filter(|result| result.causes.is_empty()).count() {
        1 => {}
        0 => {
            found.push(at.composite("must validate one and only one schema (oneOf). Found none valid"));
            found.merge(nearest(results));
        }
        valid => {
            let words =
                format!("must validate one and only one schema (oneOf). Found {valid} valid alternatives");
            found.push(at.composite(&words));
        }
    }
}

/// The first of the results in which the most passed.
fn nearest(results: Vec<Findings>) -> Findings {
    let mut best: Option<Findings> = None;
    for result in results {
        if best.as_ref().is_none_or(|best| result.passed > best.passed) {
            best = Some(result);
        }
    }
    best.unwrap_or_default()
}
