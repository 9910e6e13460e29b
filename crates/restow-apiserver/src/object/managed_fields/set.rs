//! Sets of paths, as `fieldsV1` writes them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A set of paths: each step is written as in `fieldsV1`, such as `f:spec` or `k:{"name":"a"}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    /// Whether the path to here is a member.
    member: bool,
    children: BTreeMap<String, Set>,
}

impl Set {
    /// Parses `fieldsV1`.
    pub(crate) fn parse(fields: &Value) -> Option<Self> {
        let mut root = match fields {
            Value::Null => Self::default(),
            _ => Self::parse_node(fields)?,
        };
        root.member = false;
        Some(root)
    }

    fn parse_node(fields: &Value) -> Option<Self> {
        let fields = fields.as_object()?;
        let mut node = Self { member: fields.is_empty(), children: BTreeMap::new() };
        for (step, inner) in fields {
            if step == "." {
                node.member = true;
            } else {
                node.children.insert(step.clone(), Self::parse_node(inner)?);
            }
        }
        Some(node)
    }

    /// Writes `fieldsV1`.
    pub(crate) fn to_value(&self) -> Value {
        let mut fields = Map::new();
        for (step, child) in &self.children {
            let mut inner = child.to_value();
            if child.member && !child.children.is_empty() {
                inner["."] = json!({});
            }
            fields.insert(step.clone(), inner);
        }
        Value::Object(fields)
    }

    /// Whether there is no path in it.
    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.values().all(Self::is_empty)
    }

    /// The set at a path element, created if it is missing.
    pub(super) fn at(&mut self, step: String) -> &mut Self {
        self.children.entry(step).or_default()
    }

    /// Adds the path to here.
    pub(super) fn insert(&mut self) {
        self.member = true;
    }

    /// Drops path elements without members.
    pub(super) fn prune(&mut self) {
        self.children.values_mut().for_each(Self::prune);
        self.children.retain(|_, child| child.member || !child.children.is_empty());
    }

    /// All paths of both.
    #[must_use]
    pub(crate) fn with(mut self, other: &Self) -> Self {
        self.member |= other.member;
        for (step, child) in &other.children {
            let own = self.children.remove(step).unwrap_or_default();
            self.children.insert(step.clone(), own.with(child));
        }
        self
    }

    /// The paths that are not in the other.
    #[must_use]
    pub(crate) fn without(self, other: &Self) -> Self {
        let children = self.children.into_iter().map(|(step, child)| {
            let rest = match other.children.get(&step) {
                Some(taken) => child.without(taken),
                None => child,
            };
            (step, rest)
        });
        Self {
            member: self.member && !other.member,
            children: children.filter(|(_, child)| !child.is_empty()).collect(),
        }
    }

    /// Removes apiVersion, kind, and metadata itself with these fields of it.
    pub(super) fn remove_fields(&mut self, metadata: &[&str]) {
        self.children.retain(|step, _| step != "f:apiVersion" && step != "f:kind");
        if let Some(fields) = self.children.get_mut("f:metadata") {
            fields.member = false;
            fields
                .children
                .retain(|step, _| !metadata.iter().any(|key| step.strip_prefix("f:") == Some(key)));
        }
        self.children.retain(|_, child| !child.is_empty());
    }
}
