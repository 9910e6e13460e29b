//! The schema of a custom resource, from the `openAPIV3Schema` of its definition.

use serde_json::{Map as Object, Value};

use super::metadata::{metadata, scalar};
use super::{Field, List, ListKind, Map, Ref, Scalar, Schema, Type};

impl Schema {
    /// Reads a structural `openAPIV3Schema`. `preserve_unknown` is `spec.preserveUnknownFields` of the definition.
    pub fn of_custom_resource(schema: &Value, preserve_unknown: bool) -> Self {
        let Some(schema) = schema.as_object() else { return Self::without_schema() };
        let mut root = read(schema, preserve_unknown);
        // The root is always an object, with the fields of every object.
        let mut map = root.map.take().map(|map| *map).unwrap_or_default();
        own_fields(&mut map);
        Self::new([], Ref::Inline(Type { map: Some(Box::new(map)), ..Type::default() }))
    }

    /// A custom resource without a schema: only its metadata is known.
    fn without_schema() -> Self {
        let mut map = Map { rest: Some(Ref::Deduced), ..Map::default() };
        own_fields(&mut map);
        Self::new([], Ref::Inline(Type { map: Some(Box::new(map)), ..Type::default() }))
    }
}

/// Adds apiVersion, kind and metadata.
fn own_fields(map: &mut Map) {
    for name in ["apiVersion", "kind"] {
        map.fields.insert(name.to_owned(), Field { of: Ref::Inline(scalar(Scalar::Text)), default: None });
    }
    map.fields.insert("metadata".to_owned(), Field { of: Ref::Inline(metadata()), default: None });
}

fn is_true(schema: &Object<String, Value>, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

/// Unknown fields are preserved in everything below a schema that says so.
fn read(schema: &Object<String, Value>, preserve: bool) -> Type {
    let preserve = preserve || is_true(schema, "x-kubernetes-preserve-unknown-fields");
    let (object, list) =
        (|| Some(Box::new(map(schema, preserve))), || Some(Box::new(items(schema, preserve))));
    match schema.get("type").and_then(Value::as_str).unwrap_or_default() {
        "object" => Type { map: object(), ..Type::default() },
        "array" => Type { list: list(), ..Type::default() },
        "integer" | "number" => scalar(Scalar::Number),
        "boolean" => scalar(Scalar::Boolean),
        "string" => match schema.get("format").and_then(Value::as_str) {
            None | Some("" | "byte") => scalar(Scalar::Text),
            Some(_) => scalar(Scalar::Any),
        },
        // Without a type, it may be anything: an integer or a string, for example.
        _ => Type { scalar: Some(Scalar::Any), list: list(), map: object() },
    }
}

fn inline(schema: Option<&Value>, preserve: bool) -> Option<Ref> {
    Some(Ref::Inline(read(schema?.as_object()?, preserve)))
}

fn map(schema: &Object<String, Value>, preserve: bool) -> Map {
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut map = Map {
        atomic: schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
        ..Map::default()
    };
    for (name, property) in properties.into_iter().flatten() {
        if let Some(of) = inline(Some(property), preserve) {
            let default = property.get("default").filter(|default| !default.is_null()).cloned();
            map.fields.insert(name.clone(), Field { of, default });
        }
    }
    let free = preserve || properties.is_none_or(Object::is_empty);
    map.rest = match schema.get("additionalProperties") {
        None | Some(Value::Null) => free.then_some(Ref::Deduced),
        Some(Value::Bool(allowed)) => allowed.then_some(Ref::Deduced),
        additional => inline(additional, preserve),
    };
    if is_true(schema, "x-kubernetes-embedded-resource") {
        own_fields(&mut map);
    }
    map
}

fn items(schema: &Object<String, Value>, preserve: bool) -> List {
    let kind = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys =
                schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten();
            ListKind::Keyed(keys.filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => ListKind::Atomic,
    };
    List { kind, item: inline(schema.get("items"), preserve).unwrap_or(Ref::Untyped) }
}
