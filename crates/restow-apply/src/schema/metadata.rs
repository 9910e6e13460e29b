//! The metadata of every object.

use std::collections::HashMap;

use super::{Field, List, ListKind, Map, Ref, Scalar, Type};

/// The type of `metadata`: labels and annotations are granular, finalizers are a set, and owner references have their uid
/// as key.
pub(super) fn metadata() -> Type {
    let texts = ["generateName", "name", "namespace", "resourceVersion", "selfLink", "uid"];
    let numbers = ["deletionGracePeriodSeconds", "generation"];
    let times = ["creationTimestamp", "deletionTimestamp"];
    let mut fields = HashMap::new();
    let mut add = |name: &str, of: Type| {
        fields.insert(name.to_owned(), Field { of: Ref::Inline(of), default: None });
    };
    texts.iter().for_each(|name| add(name, scalar(Scalar::Text)));
    numbers.iter().for_each(|name| add(name, scalar(Scalar::Number)));
    times.iter().for_each(|name| add(name, scalar(Scalar::Any)));
    for name in ["labels", "annotations"] {
        add(name, object(Map { rest: Some(Ref::Inline(scalar(Scalar::Text))), ..Map::default() }));
    }
    add("finalizers", list(ListKind::Set, Ref::Inline(scalar(Scalar::Text))));
    add("ownerReferences", list(ListKind::Keyed(vec!["uid".to_owned()]), Ref::Inline(owner())));
    add("managedFields", list(ListKind::Atomic, Ref::Deduced));
    object(Map { fields, ..Map::default() })
}

/// An owner reference is one value.
fn owner() -> Type {
    let mut fields = HashMap::new();
    for name in ["apiVersion", "kind", "name", "uid"] {
        let field = Field { of: Ref::Inline(scalar(Scalar::Text)), default: Some("".into()) };
        fields.insert(name.to_owned(), field);
    }
    for name in ["blockOwnerDeletion", "controller"] {
        let field = Field { of: Ref::Inline(scalar(Scalar::Boolean)), default: None };
        fields.insert(name.to_owned(), field);
    }
    object(Map { fields, atomic: true, ..Map::default() })
}

pub(super) fn scalar(scalar: Scalar) -> Type {
    Type { scalar: Some(scalar), ..Type::default() }
}

pub(super) fn object(map: Map) -> Type {
    Type { map: Some(Box::new(map)), ..Type::default() }
}

pub(super) fn list(kind: ListKind, item: Ref) -> Type {
    Type { list: Some(Box::new(List { kind, item })), ..Type::default() }
}
