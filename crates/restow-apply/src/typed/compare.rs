//! Compares two values, path by path.

use std::collections::BTreeMap;

use serde_json::Value;

use super::TypeErrors;
use crate::element::{Element, same};
use crate::schema::{Kind, List, ListKind, Map, Ref, Schema};
use crate::set::{Node, Set};

/// The paths by which two objects differ. Each is in one of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// In the old object only.
    pub(crate) removed: Set,
    /// In both, with other values.
    pub(crate) modified: Set,
    /// In the new object only.
    pub(crate) added: Set,
}

impl Comparison {
    /// Without paths that are excluded, and all below them.
    #[must_use]
    pub(crate) fn without(self, excluded: Option<&Set>) -> Self {
        let Some(excluded) = excluded.filter(|excluded| !excluded.is_empty()) else { return self };
        Self {
            removed: self.removed.recursive_difference(excluded),
            modified: self.modified.recursive_difference(excluded),
            added: self.added.recursive_difference(excluded),
        }
    }
}

/// The paths by which two objects of a schema differ.
pub(crate) fn compare(schema: &Schema, old: &Value, new: &Value) -> Result<Comparison, TypeErrors> {
    let mut difference = Difference::default();
    let errors = Comparer { schema }.value(schema.root(), Some(old), Some(new), &mut difference);
    if !errors.is_empty() {
        return Err(errors);
    }
    let Difference { removed, modified, added } = difference;
    Ok(Comparison { removed: removed.below, modified: modified.below, added: added.below })
}

/// How two values at one path differ.
#[derive(Default)]
struct Difference {
    removed: Node,
    modified: Node,
    added: Node,
}

impl Difference {
    fn attach(&mut self, element: &Element, inner: Self) {
        self.removed.below.attach(element, inner.removed);
        self.modified.below.attach(element, inner.modified);
        self.added.below.attach(element, inner.added);
    }

    fn is_empty(&self) -> bool {
        [&self.removed, &self.modified, &self.added].iter().all(|node| !node.member && node.below.is_empty())
    }
}

type Side<'v> = Option<&'v Value>;

struct Comparer<'s> {
    schema: &'s Schema,
}

impl<'s> Comparer<'s> {
    fn value(&self, of: &'s Ref, old: Side<'_>, new: Side<'_>, out: &mut Difference) -> TypeErrors {
        let shape = self.schema.resolve(of);
        let (before, after) = (shape.kind(old), shape.kind(new));
        let mut errors = TypeErrors::default();
        let is_leaf = match (old, new) {
            (_, None) => self.kind(before, old, new, out, &mut errors),
            (None, _) => self.kind(after, old, new, out, &mut errors),
            _ if before.is_like(&after) => self.kind(after, old, new, out, &mut errors),
            _ => {
                self.kind(before, old, new, out, &mut errors);
                self.kind(after, old, new, out, &mut errors)
            }
        };
        if !is_leaf {
            out.added.member |= old.is_none();
            out.removed.member |= new.is_none();
        }
        errors
    }

    /// Compares values that are taken for a kind. Returns whether they are compared as a whole.
    fn kind(
        &self,
        kind: Kind<'s>,
        old: Side<'_>,
        new: Side<'_>,
        out: &mut Difference,
        errors: &mut TypeErrors,
    ) -> bool {
        match kind {
            Kind::Map { map, atomic } => {
                let (before, after) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
                let is_empty = |side: Option<&serde_json::Map<String, Value>>| {
                    side.is_none_or(|fields| fields.is_empty())
                };
                if atomic || (is_empty(before) && is_empty(after)) {
                    leaf(old, new, out);
                    return true;
                }
                self.fields(map, before, after, out, errors);
                false
            }
            Kind::List(list) => {
                let items = |side: Side<'_>| {
                    side.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().is_empty()
                };
                if list.kind == ListKind::Atomic || (items(old) && items(new)) {
                    leaf(old, new, out);
                    return true;
                }
                self.items(list, old, new, out, errors);
                false
            }
            Kind::Scalar(_) => {
                leaf(old, new, out);
                true
            }
            Kind::Nothing => {
                errors.add("", TypeErrors::one("field not declared in schema"));
                false
            }
        }
    }

    fn fields(
        &self,
        map: &'s Map,
        old: Option<&serde_json::Map<String, Value>>,
        new: Option<&serde_json::Map<String, Value>>,
        out: &mut Difference,
        errors: &mut TypeErrors,
    ) {
        let gone =
            old.into_iter().flatten().filter(|(name, _)| new.is_none_or(|new| !new.contains_key(*name)));
        let gone = gone.map(|(name, value)| (name, Some(value), None));
        let there = new
            .into_iter()
            .flatten()
            .map(|(name, value)| (name, old.and_then(|old| old.get(name)), Some(value)));
        for (name, old, new) in gone.chain(there) {
            let mut inner = Difference::default();
            let found = match map.field(name) {
                Some(of) => self.value(of, old, new, &mut inner),
                None => TypeErrors::one("field not declared in schema"),
            };
            errors.add(format_args!(".{name}"), found);
            if !inner.is_empty() {
                out.attach(&Element::Field(name.clone()), inner);
            }
        }
    }

    fn items(
        &self,
        list: &'s List,
        old: Side<'_>,
        new: Side<'_>,
        out: &mut Difference,
        errors: &mut TypeErrors,
    ) {
        if let (Some(old), Some(new)) = (old, new)
            && old == new
        {
            return;
        }
        let (before, after) = (self.index(list, old, errors), self.index(list, new, errors));
        for (element, olds) in &before {
            let news = after.get(element).map(Vec::as_slice).unwrap_or_default();
            self.item(list, element, olds, news, out, errors);
        }
        for (element, news) in after.iter().filter(|(element, _)| !before.contains_key(element)) {
            self.item(list, element, &[], news, out, errors);
        }
    }

    fn index<'v>(
        &self,
        list: &List,
        side: Side<'v>,
        errors: &mut TypeErrors,
    ) -> BTreeMap<Element, Vec<&'v Value>> {
        let mut index: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
        for (at, item) in side.and_then(Value::as_array).into_iter().flatten().enumerate() {
            match self.schema.element(list, item) {
                Ok(element) => index.entry(element).or_default().push(item),
                Err(message) => errors.add("", TypeErrors::one(format!("element {at}: {message}"))),
            }
        }
        index
    }

    /// Compares the items that are identified alike. Of several on one side, only the element itself counts.
    fn item(
        &self,
        list: &'s List,
        element: &Element,
        olds: &[&Value],
        news: &[&Value],
        out: &mut Difference,
        errors: &mut TypeErrors,
    ) {
        let mut inner = Difference::default();
        let mut compare = |old: Side<'_>, new: Side<'_>, inner: &mut Difference| {
            errors.add(element, self.value(&list.item, old, new, inner));
        };
        match (olds, news) {
            ([] | [_], [] | [_]) => compare(olds.first().copied(), news.first().copied(), &mut inner),
            ([_, _, ..], [_, _, ..]) => {
                let equal =
                    olds.len() == news.len() && olds.iter().zip(news).all(|(old, new)| same(old, new));
                inner.modified.member |= !equal;
            }
            ([_, _, ..], _) => {
                if let Some(new) = news.first() {
                    compare(None, Some(new), &mut inner);
                }
                inner.removed.member = true;
            }
            (_, _) => {
                if let Some(old) = olds.first() {
                    compare(Some(old), None, &mut inner);
                }
                inner.added.member = true;
            }
        }
        if !inner.is_empty() {
            out.attach(element, inner);
        }
    }
}

fn leaf(old: Side<'_>, new: Side<'_>, out: &mut Difference) {
    match (old, new) {
        (None, _) => out.added.member = true,
        (_, None) => out.removed.member = true,
        (Some(old), Some(new)) => out.modified.member |= !same(old, new),
    }
}
