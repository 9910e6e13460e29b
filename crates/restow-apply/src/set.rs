//! Sets of paths, as `fieldsV1` of a managedFields entry has them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use crate::element::Element;
use crate::schema::{Ref, Schema};

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(pub(crate) BTreeMap<Element, Node>);

/// What a set has at one path, and below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// Whether the path to here is in the set.
    pub(crate) member: bool,
    pub(crate) below: Set,
}

/// A path to a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<Element>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| write!(f, "{element}"))
    }
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.below.0.is_empty()
    }
}

impl Set {
    /// A set of fields, each named by the fields that lead to it.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path.iter().map(|name| Element::Field((*name).to_owned())).collect());
        }
        set
    }

    /// Adds a path. The empty path is never a member.
    pub fn insert(&mut self, path: Vec<Element>) {
        let count = path.len();
        let mut set = self;
        for (index, element) in path.into_iter().enumerate() {
            let node = set.0.entry(element).or_default();
            node.member |= index + 1 == count;
            set = &mut node.below;
        }
    }

    /// Whether a path is in the set.
    pub fn contains(&self, path: &[Element]) -> bool {
        let Some((last, before)) = path.split_last() else { return false };
        let mut set = self;
        for element in before {
            let Some(node) = set.0.get(element) else { return false };
            set = &node.below;
        }
        set.0.get(last).is_some_and(|node| node.member)
    }

    /// Whether there is no path in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All paths: at each level first those that end there.
    pub fn paths(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.collect(&mut Vec::new(), &mut found);
        found
    }

    fn collect(&self, within: &mut Vec<Element>, found: &mut Vec<Path>) {
        for element in self.0.iter().filter(|(_, node)| node.member).map(|(element, _)| element) {
            let path = within.iter().chain([element]).cloned().collect();
            found.push(Path(path));
        }
        for (element, node) in &self.0 {
            within.push(element.clone());
            node.below.collect(within, found);
            within.pop();
        }
    }

    /// Puts what is below a path element into the set, unless it is nothing.
    pub(crate) fn attach(&mut self, element: &Element, node: Node) {
        if !node.is_empty() {
            self.0.insert(element.clone(), node);
        }
    }

    /// What the set has at a path element.
    pub(crate) fn at(&self, element: &Element) -> Option<&Node> {
        self.0.get(element)
    }

    /// The paths of both.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        for (element, node) in &other.0 {
            match self.0.entry(element.clone()) {
                Entry::Vacant(vacant) => {
                    vacant.insert(node.clone());
                }
                Entry::Occupied(mut own) => {
                    let own = own.get_mut();
                    own.member |= node.member;
                    own.below = std::mem::take(&mut own.below).union(&node.below);
                }
            }
        }
        self
    }

    /// The paths that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        for (element, node) in &self.0 {
            if let Some(counterpart) = other.0.get(element) {
                let below = node.below.intersection(&counterpart.below);
                both.attach(element, Node { member: node.member && counterpart.member, below });
            }
        }
        both
    }

    /// The paths that are not in the other.
    #[must_use]
    pub fn difference(mut self, other: &Self) -> Self {
        self.subtract(other, &|node, other| {
            node.member &= !other.member;
            true
        });
        self
    }

    /// The paths that are not in the other and have no parent in it.
    #[must_use]
    pub fn recursive_difference(mut self, other: &Self) -> Self {
        self.subtract(other, &|_, other| !other.member);
        self
    }

    fn subtract(&mut self, other: &Self, keep: &dyn Fn(&mut Node, &Node) -> bool) {
        for (element, taken) in &other.0 {
            if let Entry::Occupied(mut own) = self.0.entry(element.clone()) {
                let node = own.get_mut();
                let kept = keep(node, taken);
                if kept {
                    node.below.subtract(&taken.below, keep);
                }
                if !kept || node.is_empty() {
                    own.remove();
                }
            }
        }
    }

    /// The set with all fields that its paths lead through, if the schema names them.
    #[must_use]
    pub(crate) fn with_named_fields(&self, schema: &Schema, of: Option<&Ref>) -> Self {
        let shape = of.map(|of| schema.resolve(of));
        let mut set = Self::default();
        for (element, node) in &self.0 {
            let (mut named, mut inner) = (false, None);
            match (element, shape) {
                (Element::Field(name), Some(shape)) => {
                    if let Some(map) = shape.map() {
                        let field = map.fields.get(name);
                        named = field.is_some();
                        inner = field.map(|field| &field.of).or(map.rest.as_ref());
                    }
                }
                (Element::Key(_), Some(shape)) => inner = shape.list().map(|list| &list.item),
                _ => {}
            }
            let member = node.member || (named && !node.below.is_empty());
            set.attach(element, Node { member, below: node.below.with_named_fields(schema, inner) });
        }
        set
    }
}

#[cfg(test)]
mod tests;
