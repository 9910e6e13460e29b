//! The columns of tables, as CustomResourceDefinitions name them in `additionalPrinterColumns`.

use serde_json::Value;

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the API")]
pub(crate) struct Column {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}

impl Column {
    pub(crate) fn parse(column: &Value) -> Self {
        let text = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description: text("description"),
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            json_path: text("jsonPath"),
        }
    }
}

pub(super) fn column(name: &str, kind: &str, format: &str, priority: i64, description: &str) -> Column {
    Column {
        name: name.into(),
        kind: kind.into(),
        format: format.into(),
        description: description.into(),
        priority,
        json_path: String::new(),
    }
}

pub(super) fn name_column() -> Column {
    column(
        "Name",
        "string",
        "name",
        0,
        "The name of the object, unique among those of its kind in its namespace.",
    )
}

pub(super) fn age_column() -> Column {
    let json_path = ".metadata.creationTimestamp".to_owned();
    Column { json_path, ..column("Age", "date", "", 0, "When the object was created.") }
}
