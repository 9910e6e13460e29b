//! The managers of an object's fields: the entries of `managedFields`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::fields_v1::InvalidFields;
use crate::set::Set;

/// How many entries of managers that do not apply are kept.
const MOST_MANAGERS: usize = 10;
/// The manager that the oldest entries are merged into.
const ANCIENT: &str = "ancient-changes";

/// How a manager writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// With server-side apply.
    Apply,
    /// With creates, updates and other patches.
    Update,
}

/// What tells managers apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManagerId {
    /// The name of the field manager.
    pub manager: String,
    /// How it writes.
    pub operation: Operation,
    /// The version it writes in. Empty if it applies: then its version may change.
    pub api_version: String,
    /// The endpoint that it writes to, such as `status`.
    pub subresource: String,
}

/// The fields of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// The version that the fields are of.
    pub api_version: String,
    /// The fields.
    pub fields: Set,
    /// When the manager last changed something, in UTC.
    pub time: Option<String>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managers(pub BTreeMap<ManagerId, Managed>);

/// managedFields that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidManagers {
    /// It is not a list of objects.
    #[error("managedFields is not a list of entries")]
    Form,
    /// Neither Apply nor Update.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// An entry without a version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// An entry without a type of fields.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// An entry with fields of an unknown type.
    #[error("invalid fieldsType {given:?} in managed fields entry {index}")]
    FieldsType {
        /// The type.
        given: String,
        /// Which entry.
        index: usize,
    },
    /// An entry with unreadable fields.
    #[error("the fields of managed fields entry {0} cannot be read")]
    Fields(usize, #[source] InvalidFields),
}

impl ManagerId {
    /// A manager as it is named in a request.
    pub fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// How the manager is named in a message about a conflict.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

impl Managers {
    /// Reads managedFields; null or none is no manager.
    pub fn parse(list: Option<&Value>) -> Result<Self, InvalidManagers> {
        let mut managers = BTreeMap::new();
        let entries = match list {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(InvalidManagers::Form),
        };
        for (index, entry) in entries.iter().enumerate() {
            let (id, managed) = entry_of(entry, index)?;
            managers.insert(id, managed);
        }
        Ok(Self(managers))
    }

    /// Writes managedFields; none if there are no managers.
    pub fn to_value(&self) -> Option<Value> {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by_key(|(id, managed)| {
            (id.operation, &managed.time, &id.manager, &managed.api_version, &id.subresource)
        });
        let list: Vec<Value> = entries.into_iter().map(|(id, managed)| written(id, managed)).collect();
        (!list.is_empty()).then_some(Value::Array(list))
    }

    /// Merges the oldest managers of each version, if there are too many.
    pub(crate) fn cap(&mut self) {
        let mut updaters: Vec<(Option<String>, ManagerId)> = self
            .0
            .iter()
            .filter(|(id, _)| id.operation == Operation::Update)
            .map(|(id, managed)| (managed.time.clone(), id.clone()))
            .collect();
        let mut count = updaters.len();
        if count <= MOST_MANAGERS {
            return;
        }
        updaters.sort();
        let mut firsts: BTreeMap<String, ManagerId> = BTreeMap::new();
        for (time, id) in updaters {
            if count <= MOST_MANAGERS {
                break;
            }
            let version = id.api_version.clone();
            let Some(first) = firsts.get(&version) else {
                firsts.insert(version, id);
                continue;
            };
            let bucket = ManagerId::new(ANCIENT, Operation::Update, &version, "");
            let Some(merged) = self.0.remove(&id) else { continue };
            let mut kept = match self.0.remove(&bucket) {
                Some(kept) => kept,
                None => self.0.remove(first).unwrap_or_else(|| merged.clone()),
            };
            kept.fields = kept.fields.union(&merged.fields);
            kept.time = time;
            self.0.insert(bucket, kept);
            count -= 1;
        }
    }
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn entry_of(entry: &Value, index: usize) -> Result<(ManagerId, Managed), InvalidManagers> {
    let operation = match text(entry, "operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(InvalidManagers::Operation),
    };
    let api_version = text(entry, "apiVersion");
    if api_version.is_empty() {
        return Err(InvalidManagers::ApiVersion);
    }
    match text(entry, "fieldsType") {
        "FieldsV1" => {}
        "" => return Err(InvalidManagers::NoFieldsType(index)),
        given => return Err(InvalidManagers::FieldsType { given: given.to_owned(), index }),
    }
    let fields = Set::parse(entry.get("fieldsV1").unwrap_or(&Value::Null))
        .map_err(|error| InvalidManagers::Fields(index, error))?;
    let id = ManagerId {
        manager: text(entry, "manager").to_owned(),
        operation,
        api_version: if operation == Operation::Apply { String::new() } else { api_version.to_owned() },
        subresource: text(entry, "subresource").to_owned(),
    };
    let time = Some(text(entry, "time")).filter(|time| !time.is_empty()).map(str::to_owned);
    Ok((id, Managed { api_version: api_version.to_owned(), fields, time }))
}

fn written(id: &ManagerId, managed: &Managed) -> Value {
    let operation = match id.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut entry = json!({
        "operation": operation, "apiVersion": managed.api_version, "fieldsType": "FieldsV1",
        "fieldsV1": managed.fields.to_value(),
    });
    for (key, text) in [
        ("manager", Some(&id.manager)),
        ("subresource", Some(&id.subresource)),
        ("time", managed.time.as_ref()),
    ] {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            entry[key] = json!(text);
        }
    }
    entry
}
