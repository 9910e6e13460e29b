//! The structure of built-in objects for field managers, from the same table as their fields.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use restow_apply::{Field as SchemaField, List, ListKind, Map, Ref, Scalar, Schema, Type};
use serde_json::{Map as Object, Value, json};

use super::table::{Field, Kind, Message, is_atomic, message, names, roots};

/// What field managers need to know of a kind.
pub(crate) struct Structure {
    pub(crate) schema: Schema,
    /// The fields that a new object has before any is set.
    pub(crate) empty: Value,
}

type Structures = HashMap<(&'static str, &'static str), Structure>;

static STRUCTURES: LazyLock<Structures> = LazyLock::new(structures);

/// The structure of a built-in kind in a version.
pub(crate) fn structure(api_version: &str, kind: &str) -> Option<&'static Structure> {
    let structures: &'static Structures = &STRUCTURES;
    // The keys live as long as the program, so that they cannot be borrowed from the caller.
    structures
        .iter()
        .find(|((version, own), _)| *version == api_version && *own == kind)
        .map(|(_, found)| found)
}

fn structures() -> Structures {
    let indices: HashMap<&str, usize> = names().enumerate().map(|(index, name)| (name, index)).collect();
    let types = names().map(|name| Type {
        map: message(name).map(|message| Box::new(map_of(message, is_atomic(name), &indices))),
        ..Type::default()
    });
    let types: Arc<[Type]> = types.collect();
    let structure = |api_version, kind, message| {
        let mut map = map_of(message, false, &indices);
        for name in ["apiVersion", "kind"] {
            map.fields.insert(name.to_owned(), SchemaField { of: scalar(Scalar::Text), default: None });
        }
        let root = Ref::Inline(Type { map: Some(Box::new(map)), ..Type::default() });
        let mut empty = empty(message);
        empty.insert("apiVersion".to_owned(), json!(api_version));
        empty.insert("kind".to_owned(), json!(kind));
        let schema = Schema::new(Arc::clone(&types), root);
        ((api_version, kind), Structure { schema, empty: Value::Object(empty) })
    };
    roots().map(|(api_version, kind, message)| structure(api_version, kind, message)).collect()
}

fn scalar(scalar: Scalar) -> Ref {
    Ref::Inline(Type { scalar: Some(scalar), ..Type::default() })
}

fn map_of(of: &Message, atomic: bool, indices: &HashMap<&str, usize>) -> Map {
    let mut map = Map { atomic, ..Map::default() };
    for field in of.values() {
        match field.kind {
            Kind::Message(name) if field.inline => {
                let inner = message(name).map(|inner| map_of(inner, false, indices)).unwrap_or_default();
                map.fields.extend(inner.fields);
            }
            _ => {
                let default = field.managed.default.clone().or_else(|| zero(field));
                map.fields
                    .insert(field.name.to_owned(), SchemaField { of: reference(field, indices), default });
            }
        }
    }
    map
}

fn reference(field: &Field, indices: &HashMap<&str, usize>) -> Ref {
    if !field.repeated {
        return of_kind(&field.kind, field.managed.atomic, indices);
    }
    let kind = match field.managed.keys.as_slice() {
        [] if field.managed.set => ListKind::Set,
        [] => ListKind::Atomic,
        keys => ListKind::Keyed(keys.iter().map(|key| (*key).to_owned()).collect()),
    };
    list(kind, of_kind(&field.kind, None, indices))
}

fn list(kind: ListKind, item: Ref) -> Ref {
    Ref::Inline(Type { list: Some(Box::new(List { kind, item })), ..Type::default() })
}

fn of_kind(kind: &Kind, atomic: Option<bool>, indices: &HashMap<&str, usize>) -> Ref {
    match kind {
        Kind::Text | Kind::Bytes => scalar(Scalar::Text),
        Kind::Flag => scalar(Scalar::Boolean),
        Kind::Integer | Kind::Float => scalar(Scalar::Number),
        Kind::Time | Kind::MicroTime | Kind::Quantity => scalar(Scalar::Any),
        Kind::Message(name) => match indices.get(name) {
            Some(index) => Ref::Named { index: *index, atomic },
            None => Ref::Untyped,
        },
        Kind::Map(inner) => {
            let rest = Some(of_kind(inner, None, indices));
            let map = Map { rest, atomic: atomic == Some(true), ..Map::default() };
            Ref::Inline(Type { map: Some(Box::new(map)), ..Type::default() })
        }
        Kind::List(inner) => list(ListKind::Atomic, of_kind(inner, None, indices)),
        Kind::IntOrString | Kind::Raw | Kind::Or(_) => Ref::Deduced,
    }
}

/// The value that a field has even if it was not set.
fn zero(field: &Field) -> Option<Value> {
    match (&field.kind, field.repeated) {
        (_, true) => field.managed.always.then_some(Value::Null),
        (Kind::Message(_), _) if field.pointer => None,
        (Kind::Message(name), _) => Some(Value::Object(message(name).map(empty).unwrap_or_default())),
        _ if !field.required => None,
        (Kind::Text | Kind::Bytes, _) => Some(json!("")),
        (Kind::Flag, _) => Some(json!(false)),
        (Kind::Integer | Kind::Float, _) => Some(json!(0)),
        _ => Some(Value::Null),
    }
}

/// The fields of an empty object of a type.
fn empty(of: &Message) -> Object<String, Value> {
    let mut fields = Object::new();
    for field in of.values() {
        match field.kind {
            Kind::Message(name) if field.inline => {
                fields.extend(message(name).map(empty).unwrap_or_default())
            }
            _ => fields.extend(zero(field).map(|value| (field.name.to_owned(), value))),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use schemars::generate::SchemaSettings;

    use super::*;
    use crate::registry::built_in::ALL_BUILT_IN;

    #[test]
    fn every_field_of_a_built_in_kind_is_known() {
        let mut generator = SchemaSettings::openapi3().into_generator();
        let names: Vec<String> = ALL_BUILT_IN.iter().map(|own| (own.typed.schema)(&mut generator)).collect();
        let definitions = generator.take_definitions(true);
        for (own, name) in ALL_BUILT_IN.iter().zip(names) {
            let properties = definitions[&name]["properties"].as_object().cloned().unwrap_or_default();
            let Some(found) = structure(&own.api_version(), own.kind) else { panic!("{}", own.kind) };
            let object: Value = properties.keys().map(|key| (key.clone(), Value::Null)).collect();
            let manager = restow_apply::FieldManager {
                versions: &Only(&found.schema),
                api_version: &own.api_version(),
                subresource: "",
                now: "",
            };
            let applied = manager.apply(&found.empty, &object, &found.empty, "m", false);
            assert!(applied.is_ok(), "{}: {applied:?}", own.kind);
        }
    }

    /// A resource with one version.
    struct Only<'s>(&'s Schema);

    impl restow_apply::Versions for Only<'_> {
        fn schema(&self, _: &str) -> Option<&Schema> {
            Some(self.0)
        }
        fn convert(&self, _: &Value, _: &str) -> Result<Value, restow_apply::Unconverted> {
            Err(restow_apply::Unconverted::Missing)
        }
        fn reset_fields(&self, _: &str) -> Option<&restow_apply::Set> {
            None
        }
    }

    #[test]
    fn lists_of_built_in_kinds_have_the_keys_that_kubernetes_publishes() {
        let owned = |api_version: &str, object: Value| {
            let kind = object["kind"].as_str().unwrap_or_default();
            let Some(found) = structure(api_version, kind) else { panic!("{kind}") };
            let only = Only(&found.schema);
            let manager =
                restow_apply::FieldManager { versions: &only, api_version, subresource: "", now: "t" };
            match manager.update(&found.empty, &object, "alice") {
                Ok(Some(managed)) => managed[0]["fieldsV1"].clone(),
                other => panic!("{other:?}"),
            }
        };
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c",
            "image": "i", "ports": [{"containerPort": 80}]}], "nodeSelector": {"a": "b"}, "restartPolicy": "Always"}});
        assert_eq!(
            owned("v1", pod),
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}, "f:ports": {".": {},
                "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}, "f:nodeSelector": {},
                "f:restartPolicy": {}}})
        );
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}});
        assert_eq!(
            owned("v1", service),
            json!({"f:spec": {"f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}},
                "f:selector": {}}})
        );
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "finalizers": ["x.y/z"],
            "ownerReferences": [{"uid": "u", "name": "o"}]}, "secrets": [{"name": "s"}]});
        assert_eq!(
            owned("v1", account),
            json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"x.y/z\"": {}}, "f:ownerReferences": {".": {}, "k:{\"uid\":\"u\"}": {}}},
                "f:secrets": {".": {}, "k:{\"name\":\"s\"}": {}}})
        );
    }
}
