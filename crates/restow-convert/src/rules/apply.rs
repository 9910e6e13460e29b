//! Carries rules out: one object of one version in, the object of the neighbouring version out.

use serde_json::{Map, Value};

use super::document::{
    Both, Cel, Computed, Each, Enum, Join, ListAndMap, Part, Remove, Rule, ScalarType, Scale, Set, Split,
    TypeChange, Units,
};
use super::expression::Visible;
use super::path::Path;
use super::programs::Programs;
use super::scalar::{Scaling, scale, to_type};
use super::units::Measure;
use crate::hop::Direction;
use crate::schema::{Schema, shortened};

/// Why a rule cannot convert a value.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// The rule has no answer for the value.
    #[error("{path}: {problem}: {value}")]
    Value {
        /// The field of the object.
        path: String,
        /// What is wrong with its value.
        problem: &'static str,
        /// The value, cut short if it is long.
        value: String,
    },
    /// An expression has no value for the object.
    #[error("{path}: {problem}, in the expression {expression}")]
    Expression {
        /// The field of the other version that the expression is for.
        path: String,
        /// What went wrong.
        problem: String,
        /// The text of the expression, as the rule has it.
        expression: String,
    },
    /// A field that a rule sets lies in something that is no object.
    #[error("{path}: cannot be set, because {obstacle} is not an object")]
    InTheWay {
        /// The field that the rule sets.
        path: String,
        /// The field that is in the way.
        obstacle: String,
    },
}

impl RuleError {
    fn value(path: &Path, problem: &'static str, value: &Value) -> Self {
        Self::Value { path: path.to_string(), problem, value: shortened(value) }
    }

    fn below(self, prefix: &str) -> Self {
        let join = |path: &str| {
            let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
            format!("{prefix}{dot}{path}")
        };
        match self {
            Self::Value { path, problem, value } => Self::Value { path: join(&path), problem, value },
            Self::Expression { path, problem, expression } => {
                Self::Expression { path: join(&path), problem, expression }
            }
            Self::InTheWay { path, obstacle } => {
                Self::InTheWay { path: join(&path), obstacle: join(&obstacle) }
            }
        }
    }
}

/// What a conversion needs besides the rules and the object.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub direction: Direction,
    /// The schema of the object.
    pub source_schema: Schema<'a>,
    /// The schema of the result.
    pub schema: Schema<'a>,
    pub programs: &'a Programs,
}

/// Converts a whole object, or an element of a list.
pub(super) fn apply(rules: &[Rule], source: &Value, way: Way<'_>) -> Result<Value, RuleError> {
    // What a rule is about is written by that rule alone.
    let mut target = source.clone();
    for path in rules.iter().flat_map(sides).flatten() {
        path.remove(&mut target);
    }
    let mut conversion = Conversion { source, target, way };
    for rule in rules {
        conversion.carry_out(rule)?;
    }
    Ok(conversion.target)
}

/// The fields of the older and of the newer version that a rule is about.
pub(super) fn sides(rule: &Rule) -> [Vec<&Path>; 2] {
    fn parts(parts: &[Part]) -> Vec<&Path> {
        parts.iter().map(|part| &part.path).collect()
    }
    fn computed(fields: &[Computed]) -> Vec<&Path> {
        fields.iter().map(|field| &field.path).collect()
    }
    match rule {
        Rule::Rename(Both { older, newer })
        | Rule::Move(Both { older, newer })
        | Rule::Wrap(Both { older, newer })
        | Rule::Unwrap(Both { older, newer })
        | Rule::Enum(Enum { older, newer, .. })
        | Rule::Type(TypeChange { older, newer, .. })
        | Rule::ListToMap(ListAndMap { older, newer, .. })
        | Rule::MapToList(ListAndMap { older, newer, .. })
        | Rule::Scale(Scale { older, newer, .. })
        | Rule::Quantity(Units { older, newer, .. })
        | Rule::Duration(Units { older, newer, .. })
        | Rule::Each(Each { older, newer, .. }) => [vec![older], vec![newer]],
        Rule::Default(Set { older, newer, .. })
        | Rule::Constant(Set { older, newer, .. })
        | Rule::Remove(Remove { older, newer, .. }) => [older.iter().collect(), newer.iter().collect()],
        Rule::Split(Split { older, newer, .. }) => [vec![older], parts(newer)],
        Rule::Join(Join { older, newer, .. }) => [parts(older), vec![newer]],
        Rule::Cel(Cel { older, newer }) => [computed(older), computed(newer)],
    }
}

struct Conversion<'a> {
    source: &'a Value,
    target: Value,
    way: Way<'a>,
}

impl Conversion<'_> {
    fn carry_out(&mut self, rule: &Rule) -> Result<(), RuleError> {
        let up = matches!(self.way.direction, Direction::Up);
        match rule {
            Rule::Rename(both) | Rule::Move(both) => self.convert(both, |value, _| Ok(value.clone())),
            Rule::Default(set) | Rule::Constant(set) => self.set(set),
            Rule::Remove(_) => Ok(()),
            Rule::Enum(rule) => {
                let both = Both { older: rule.older.clone(), newer: rule.newer.clone() };
                self.convert(&both, |value, schema| {
                    let other_name = rename_value(rule, value, up);
                    let same_name = || schema.allows(value).then(|| value.clone());
                    other_name.or_else(same_name).ok_or("no rule for this value")
                })
            }
            Rule::Type(rule) => {
                let wanted = if up { rule.newer_type } else { rule.older_type };
                let both = Both { older: rule.older.clone(), newer: rule.newer.clone() };
                self.convert(&both, |value, _| to_type(value, wanted).ok_or(no_such(wanted)))
            }
            Rule::Split(Split { older, newer, separator }) if up => self.split(older, newer, separator),
            Rule::Split(Split { older, newer, separator }) => self.join(newer, older, separator),
            Rule::Join(Join { older, newer, separator }) if up => self.join(older, newer, separator),
            Rule::Join(Join { older, newer, separator }) => self.split(newer, older, separator),
            Rule::ListToMap(rule) => self.list_or_map(rule, up),
            Rule::MapToList(rule) => self.list_or_map(rule, !up),
            Rule::Wrap(both) if up => self.convert(both, |value, _| Ok(wrap(value))),
            Rule::Wrap(both) => self.unwrap(both),
            Rule::Unwrap(both) if up => self.unwrap(both),
            Rule::Unwrap(both) => self.convert(both, |value, _| Ok(wrap(value))),
            Rule::Scale(rule) => {
                let scaling = if up { Scaling::Times(rule.factor) } else { Scaling::DividedBy(rule.factor) };
                let both = Both { older: rule.older.clone(), newer: rule.newer.clone() };
                self.convert(&both, |value, schema| {
                    scale(value, scaling, schema.is_integer()).ok_or("not a number that can be scaled")
                })
            }
            Rule::Quantity(rule) => self.measure(Measure::Quantity, rule, up, "not a quantity, or too large"),
            Rule::Duration(rule) => self.measure(Measure::Duration, rule, up, "not a duration, or too large"),
            Rule::Each(rule) => self.each(rule),
            Rule::Cel(Cel { older, newer }) if up => self.compute(older, newer),
            Rule::Cel(Cel { older, newer }) => self.compute(newer, older),
        }
    }

    /// Reads one field and writes another one. Nothing happens if there is no such field.
    fn convert(
        &mut self,
        both: &Both,
        convert: impl FnOnce(&Value, Schema<'_>) -> Result<Value, &'static str>,
    ) -> Result<(), RuleError> {
        let (from, to) = self.ends(&both.older, &both.newer);
        let converted = match from.get(self.source) {
            None => return Ok(()),
            Some(Value::Null) => Value::Null,
            Some(value) => convert(value, self.way.schema.at(to.fields()))
                .map_err(|problem| RuleError::value(from, problem, value))?,
        };
        self.write(to, converted)
    }

    fn ends<'p>(&self, older: &'p Path, newer: &'p Path) -> (&'p Path, &'p Path) {
        match self.way.direction {
            Direction::Up => (older, newer),
            Direction::Down => (newer, older),
        }
    }

    fn write(&mut self, to: &Path, value: Value) -> Result<(), RuleError> {
        to.set(&mut self.target, value)
            .map_err(|obstacle| RuleError::InTheWay { path: to.to_string(), obstacle: obstacle.to_string() })
    }

    fn set(&mut self, set: &Set) -> Result<(), RuleError> {
        let to = match self.way.direction {
            Direction::Up => &set.newer,
            Direction::Down => &set.older,
        };
        to.as_ref().map_or(Ok(()), |to| self.write(to, set.value.clone()))
    }

    fn split(&mut self, from: &Path, to: &[Part], separator: &str) -> Result<(), RuleError> {
        let text = match from.get(self.source) {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(text)) => text,
            Some(value) => return Err(RuleError::value(from, "not a string", value)),
        };
        for (part, text) in to.iter().zip(text.splitn(to.len(), separator)) {
            let wanted = part.scalar.unwrap_or(ScalarType::String);
            let value = Value::from(text);
            let value =
                to_type(&value, wanted).ok_or_else(|| RuleError::value(from, no_such(wanted), &value))?;
            self.write(&part.path, value)?;
        }
        Ok(())
    }

    /// The parts up to the first one that is missing.
    fn join(&mut self, from: &[Part], to: &Path, separator: &str) -> Result<(), RuleError> {
        let mut texts = Vec::new();
        for part in from {
            match part.path.get(self.source) {
                None | Some(Value::Null) => break,
                Some(value) => match to_type(value, ScalarType::String) {
                    Some(Value::String(text)) => texts.push(text),
                    _ => return Err(RuleError::value(&part.path, "not a part of a string", value)),
                },
            }
        }
        if texts.is_empty() { Ok(()) } else { self.write(to, texts.join(separator).into()) }
    }

    fn list_or_map(&mut self, rule: &ListAndMap, list_to_map: bool) -> Result<(), RuleError> {
        let both = Both { older: rule.older.clone(), newer: rule.newer.clone() };
        self.convert(&both, |value, _| if list_to_map { to_map(rule, value) } else { to_list(rule, value) })
    }

    fn unwrap(&mut self, both: &Both) -> Result<(), RuleError> {
        let (from, to) = self.ends(&both.older, &both.newer);
        match from.get(self.source) {
            None | Some(Value::Null) => Ok(()),
            Some(Value::Array(items)) => items.first().map_or(Ok(()), |first| self.write(to, first.clone())),
            Some(value) => Err(RuleError::value(from, "not a list", value)),
        }
    }

    fn measure(
        &mut self,
        measure: Measure,
        rule: &Units,
        up: bool,
        problem: &'static str,
    ) -> Result<(), RuleError> {
        let units = (rule.older_unit.as_deref(), rule.newer_unit.as_deref());
        let (from, to) = if up { units } else { (units.1, units.0) };
        let both = Both { older: rule.older.clone(), newer: rule.newer.clone() };
        self.convert(&both, |value, schema| {
            let amount = measure.read(value, from).map_err(|_| problem)?;
            measure.write(amount, from, to, schema.is_integer()).map_err(|_| problem)
        })
    }

    fn compute(&mut self, from: &[Computed], to: &[Computed]) -> Result<(), RuleError> {
        let paths: Vec<_> = from.iter().map(|field| &field.path).collect();
        let visible = Visible { paths: &paths, schema: self.way.source_schema };
        if !visible.has_any(self.source) {
            return Ok(());
        }
        for Computed { path, value } in to {
            let Some(text) = value else { continue };
            let wanted = self.way.schema.at(path.fields()).or_text_of_metadata(path.fields());
            let value = self.way.programs.evaluate(text, self.source, visible, wanted);
            let value = value.map_err(|problem| RuleError::Expression {
                path: path.to_string(),
                problem,
                expression: text.clone(),
            })?;
            if !value.is_null() {
                self.write(path, value)?;
            }
        }
        Ok(())
    }

    fn each(&mut self, rule: &Each) -> Result<(), RuleError> {
        let (from, to) = self.ends(&rule.older, &rule.newer);
        let schema = self.way.schema.at(to.fields());
        let source_schema = self.way.source_schema.at(from.fields());
        let way = |source_schema, schema| Way { source_schema, schema, ..self.way };
        let element = |item: &Value, way: Way<'_>, at: &str| {
            apply(&rule.rules, item, way).map_err(|error| error.below(at))
        };
        let converted = match from.get(self.source) {
            None => return Ok(()),
            Some(Value::Array(items)) => {
                let items = items.iter().enumerate();
                let converted: Result<Vec<_>, _> = items
                    .map(|(index, item)| {
                        element(item, way(source_schema.items(), schema.items()), &format!("{from}[{index}]"))
                    })
                    .collect();
                Value::Array(converted?)
            }
            Some(Value::Object(fields)) => {
                let mut converted = Map::new();
                for (name, value) in fields {
                    let value = element(
                        value,
                        way(source_schema.field(name), schema.field(name)),
                        &from.child(name).to_string(),
                    )?;
                    converted.insert(name.clone(), value);
                }
                Value::Object(converted)
            }
            Some(other) => other.clone(),
        };
        self.write(to, converted)
    }
}

fn no_such(wanted: ScalarType) -> &'static str {
    match wanted {
        ScalarType::String => "cannot be written as a string",
        ScalarType::Integer => "not an integer",
        ScalarType::Number => "not a number",
        ScalarType::Boolean => "neither true nor false",
    }
}

fn rename_value(rule: &Enum, value: &Value, up: bool) -> Option<Value> {
    let text = value.as_str()?;
    let pairs = rule
        .values
        .iter()
        .map(|pair| if up { (&pair.older, &pair.newer) } else { (&pair.newer, &pair.older) });
    let mut found = pairs.filter(|(from, _)| *from == text).map(|(_, to)| Value::from(to.as_str()));
    found.next()
}

fn wrap(value: &Value) -> Value {
    Value::Array(vec![value.clone()])
}

fn to_map(rule: &ListAndMap, list: &Value) -> Result<Value, &'static str> {
    let items = list.as_array().ok_or("not a list")?;
    let mut map = Map::new();
    for item in items {
        let mut fields = item.as_object().ok_or("an element is not an object")?.clone();
        let key = fields.remove(&rule.key).ok_or("an element has no key")?;
        let Value::String(key) = key else { return Err("the key of an element is not a string") };
        let value = match &rule.value {
            Some(value) => fields.remove(value).unwrap_or(Value::Null),
            None => Value::Object(fields),
        };
        if map.insert(key, value).is_some() {
            return Err("two elements have the same key");
        }
    }
    Ok(Value::Object(map))
}

fn to_list(rule: &ListAndMap, map: &Value) -> Result<Value, &'static str> {
    let entries = map.as_object().ok_or("not a map")?;
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by_key(|(key, _)| *key);
    let elements = sorted.into_iter().map(|(key, value)| {
        let mut fields = match (&rule.value, value) {
            (Some(_), Value::Null) => Map::new(),
            (Some(name), value) => Map::from_iter([(name.clone(), value.clone())]),
            (None, Value::Object(fields)) => fields.clone(),
            (None, _) => return Err("a value is not an object"),
        };
        fields.insert(rule.key.clone(), Value::from(key.as_str()));
        Ok(Value::Object(fields))
    });
    elements.collect::<Result<_, _>>().map(Value::Array)
}
