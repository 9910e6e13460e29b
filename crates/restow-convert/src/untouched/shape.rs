//! What a schema says about which fields API servers prune.

use serde_json::{Map, Value};

/// Which fields the value at one place may have, so that nothing of it is pruned.
#[derive(Debug, PartialEq)]
pub(super) enum Shape {
    /// Anything.
    Any,
    /// Only some.
    Checked(Box<Checks>),
}

/// What an object, or a list, may have at one place.
#[derive(Debug, PartialEq)]
pub(super) struct Checks {
    /// The fields that the schema names, sorted.
    fields: Vec<(String, Shape)>,
    /// All other fields; without one, there may be none.
    others: Option<Shape>,
    /// The elements of a list.
    items: Shape,
}

impl Shape {
    /// The shape that several schemas have in common. None if they differ, or if more than pruning depends on them.
    pub(super) fn common(schemas: &[&Value]) -> Option<Self> {
        let (first, others) = schemas.split_first()?;
        let shape = Self::of(first)?;
        others.iter().all(|other| Self::of(other).as_ref() == Some(&shape)).then_some(shape)
    }

    fn of(schema: &Value) -> Option<Self> {
        let schema = schema.as_object()?;
        // A default is filled in where the value is missing, and this one would seem to be.
        if schema.contains_key("default") || schema.contains_key("x-kubernetes-embedded-resource") {
            return None;
        }
        let none = Map::new();
        let fields = schema.get("properties").map_or(Some(&none), Value::as_object)?;
        let fields = fields.iter().map(|(name, schema)| Some((name.clone(), Self::of(schema)?)));
        let mut fields = fields.collect::<Option<Vec<_>>>()?;
        fields.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let others =
            match (schema.get("additionalProperties"), schema.get("x-kubernetes-preserve-unknown-fields")) {
                (None, None | Some(Value::Bool(false))) => None,
                (None, Some(Value::Bool(true))) => Some(Self::Any),
                (Some(values), None) => Some(Self::of(values)?),
                _ => return None,
            };
        let items = schema.get("items").map_or(Some(Self::Any), Self::of)?;
        if fields.is_empty() && others == Some(Self::Any) && items == Self::Any {
            return Some(Self::Any);
        }
        Some(Self::Checked(Box::new(Checks { fields, others, items })))
    }

    /// The shape of a field. None if it would be pruned.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Any => Some(self),
            Self::Checked(checks) => {
                match checks.fields.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
                    Ok(place) => Some(&checks.fields[place].1),
                    Err(_) => checks.others.as_ref(),
                }
            }
        }
    }

    /// The shape of a list's elements.
    pub(super) fn items(&self) -> &Self {
        match self {
            Self::Any => self,
            Self::Checked(checks) => &checks.items,
        }
    }
}
