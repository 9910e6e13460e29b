//! Field sets that were written under another schema: what became atomic is owned as a whole.

use crate::element::Element;
use crate::schema::{Kind, ListKind, Ref, Schema};
use crate::set::{Node, Set};

/// The set as the schema has it now; none if nothing changes.
pub(crate) fn reconcile(schema: &Schema, set: &Set) -> Option<Set> {
    below(set, |element, node| value(schema, field_of(schema, schema.root(), element)?, node))
}

/// What a manager owns at a path; none if nothing changes. Only the type counts, not what the object has there.
fn value(schema: &Schema, of: &Ref, node: &Node) -> Option<Node> {
    let is_leaf = node.member && node.below.is_empty();
    let whole = || Some(Node { member: true, below: Set::default() });
    match schema.resolve(of).kind(None) {
        Kind::Map { map, .. } if map.fields.is_empty() && is_deduced(map.rest.as_ref()) => None,
        Kind::Map { atomic: true, .. } if !is_leaf => {
            if node.below.is_empty() {
                None
            } else {
                whole()
            }
        }
        Kind::List(list) if list.kind == ListKind::Atomic && !is_leaf => whole(),
        Kind::Map { .. } | Kind::List(_) => {
            let below =
                below(&node.below, |element, node| value(schema, field_of(schema, of, element)?, node))?;
            Some(Node { member: node.member, below })
        }
        Kind::Scalar(_) | Kind::Nothing => None,
    }
}

/// The type of what an element leads to, if the schema knows it.
fn field_of<'s>(schema: &'s Schema, of: &'s Ref, element: &Element) -> Option<&'s Ref> {
    match (schema.resolve(of).kind(None), element) {
        (Kind::Map { map, .. }, Element::Field(name)) => map.field(name),
        (Kind::Map { map, .. }, _) => map.rest.as_ref(),
        (Kind::List(list), _) => Some(&list.item),
        _ => None,
    }
}

/// The set with each part changed; none if no part changes.
fn below(set: &Set, change: impl Fn(&Element, &Node) -> Option<Node>) -> Option<Set> {
    let changed: Vec<_> =
        set.0.iter().filter_map(|(element, node)| Some((element, change(element, node)?))).collect();
    if changed.is_empty() {
        return None;
    }
    let mut set = set.clone();
    for (element, node) in changed {
        set.attach(element, node);
    }
    Some(set)
}

/// Whether a type says nothing about its values.
fn is_deduced(of: Option<&Ref>) -> bool {
    match of {
        Some(Ref::Deduced) => true,
        Some(Ref::Inline(of)) => of.scalar == Some(crate::schema::Scalar::Any),
        _ => false,
    }
}
