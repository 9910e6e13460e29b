//! Tables, as kubectl requests them.

pub(crate) mod age;
mod built_in;
pub(crate) mod column;
pub(crate) mod json_path;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::http::options::IncludeObject;
use crate::http::status::golang::show;
use crate::object::meta;
use age::age;
use column::{Column, age_column, name_column};
use json_path::JsonPath;

/// The columns of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    headers: Vec<Column>,
    cells: Cells,
}

#[derive(Clone, Debug)]
enum Cells {
    /// The name, and the results of JSON paths.
    Paths(Vec<Option<JsonPath>>),
    /// The cells of a built-in resource.
    BuiltIn(fn(&Value, Timestamp) -> Vec<Value>),
}

impl Columns {
    /// The columns of a custom resource's version; without any, its age.
    pub(crate) fn custom(columns: &[Column]) -> Self {
        let own = if columns.is_empty() { vec![age_column()] } else { columns.to_vec() };
        let paths = own.iter().map(|column| JsonPath::parse(&column.json_path)).collect();
        let mut headers = vec![name_column()];
        headers.extend(own);
        Self { headers, cells: Cells::Paths(paths) }
    }

    /// The columns of a built-in resource.
    pub(crate) fn built_in(group: &str, resource: &str) -> Self {
        let (headers, cells) = built_in::columns(group, resource);
        Self { headers, cells: Cells::BuiltIn(cells) }
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.cells {
            Cells::BuiltIn(cells) => cells(object, now),
            Cells::Paths(paths) => {
                let mut cells = vec![json!(meta::name(object))];
                let own = self.headers.iter().skip(1).zip(paths);
                cells.extend(own.map(|(column, path)| {
                    let found = path.as_ref().and_then(|path| path.find(object).into_iter().next());
                    found.map_or(Value::Null, |value| cell(&column.kind, value, now))
                }));
                cells
            }
        }
    }

    fn headers(&self) -> Vec<Value> {
        let header = |column: &Column| {
            let description = match column.description.as_str() {
                "" => format!("Custom resource definition column (in JSONPath format): {}", column.json_path),
                given => given.to_owned(),
            };
            json!({"name": column.name, "type": column.kind, "format": column.format, "description": description,
                "priority": column.priority})
        };
        self.headers.iter().map(header).collect()
    }

    #[cfg(test)]
    /// A table of objects. `version` is that of `meta.k8s.io`, `list` the metadata of the list or of the one object.
    pub(crate) fn table(
        &self,
        version: &str,
        list: Value,
        objects: &[Value],
        include: IncludeObject,
        now: Timestamp,
    ) -> Value {
        let rows: Vec<_> =
            objects.iter().map(|object| self.table_row(version, object, include, now)).collect();
        json!({"kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": list,
            "columnDefinitions": self.headers(), "rows": rows})
    }

    /// One row, for tables that are streamed.
    pub(crate) fn table_row(
        &self,
        version: &str,
        object: &Value,
        include: IncludeObject,
        now: Timestamp,
    ) -> Value {
        json!({"cells": self.row(object, now), "object": part(object, version, include)})
    }

    /// The column definitions, for tables that are streamed.
    pub(crate) fn definitions(&self) -> Value {
        Value::Array(self.headers())
    }
}

/// The metadata of a table that holds one object.
pub(crate) fn metadata_of_one(object: &Value) -> Value {
    let mut metadata = Map::new();
    if let Some(version) = meta::field(object, "resourceVersion") {
        metadata.insert("resourceVersion".into(), version.clone());
    }
    Value::Object(metadata)
}

fn part(object: &Value, version: &str, include: IncludeObject) -> Value {
    match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => object.clone(),
        IncludeObject::Metadata => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"),
            "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({}))})
        }
    }
}

/// A value as a column of this type shows it.
fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("string", Value::String(_)) => value.clone(),
        ("string", _) => json!(show(value)),
        ("integer", Value::Number(number)) => number.as_i64().map_or_else(
            || {
                #[allow(clippy::cast_possible_truncation, reason = "a column of integers shows no fractions")]
                number.as_f64().map_or(Value::Null, |float| json!(float as i64))
            },
            |integer| json!(integer),
        ),
        ("number", Value::Number(number)) => number.as_f64().map_or(Value::Null, |float| json!(float)),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => {
            json!(text.parse::<Timestamp>().map_or_else(|_| "<invalid>".to_owned(), |at| age(at, now)))
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests;
