//! What an API server does with managedFields on every write.

mod last_applied;

use serde_json::{Map as Object, Value, json};

use crate::managers::{InvalidManagers, ManagerId, Managers, Operation};
use crate::set::Set;
use crate::typed::TypeErrors;
use crate::typed::validate::{Duplicates, validate};
use crate::updater::{Conflict, Unconverted, UpdateError, Versions, Writer};

/// The fields that nobody owns.
const UNOWNED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "clusterName"],
    &["metadata", "creationTimestamp"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "resourceVersion"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
];

/// The manager of fields that were there before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Records who sets which field of an object, in the version and at the endpoint of a request.
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    /// The versions of the resource.
    pub versions: &'a dyn Versions,
    /// The version of the request, with its group.
    pub api_version: &'a str,
    /// The endpoint, such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// The time of the request, in UTC and whole seconds.
    pub now: &'a str,
}

/// Why a configuration cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The applied object has managedFields.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    /// The managedFields of the live object cannot be read.
    #[error("failed to decode managed fields: {0}")]
    Managers(#[from] InvalidManagers),
    /// The applied object does not fit its type.
    #[error("failed to create typed patch object ({object}): {errors}")]
    Types {
        /// The applied object: its namespace, name and type.
        object: String,
        /// Where and why.
        errors: TypeErrors,
    },
    /// Other managers own fields with other values.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The managers cannot be computed.
    #[error("{0}")]
    Update(String),
    /// An object has to be converted first; then everything is computed again.
    #[error("the conversion is not done yet")]
    Pending,
}

impl From<UpdateError> for ApplyError {
    fn from(error: UpdateError) -> Self {
        match error {
            UpdateError::Conflicts(conflicts) => Self::Conflicts(conflicts),
            UpdateError::Conversion(Unconverted::Pending) => Self::Pending,
            UpdateError::Conversion(error) => Self::Update(error.to_string()),
            UpdateError::Types { step, errors } => Self::Update(format!("{step}: {errors}")),
        }
    }
}

/// The message about conflicts, as kube-apiserver writes it.
fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            one.manager.describe(),
            one.path
        );
    }
    let mut lines = Vec::new();
    let mut named = None;
    for conflict in conflicts {
        if named != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager.describe()));
            named = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.path));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

impl Conflict {
    /// The conflict, without its field.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager.describe())
    }
}

impl FieldManager<'_> {
    /// The managedFields after an update of `live` to `new`, which may bring managedFields of its own; none for no managers.
    /// Without a uid, `live` is the empty object that is created from.
    ///
    /// If they cannot be computed, there are none; only a conversion that is not done yet is an error.
    pub fn update(&self, live: &Value, new: &Value, manager: &str) -> Result<Option<Value>, Unconverted> {
        let managers = self.recorded(live, new);
        let is_create = text(live, "uid").is_empty();
        if managers.0.is_empty() && !is_create {
            return Ok(None);
        }
        match self.updated(live, new, managers, manager) {
            Ok(mut managers) => {
                managers.cap();
                Ok(managers.to_value())
            }
            Err(UpdateError::Conversion(Unconverted::Pending)) => Err(Unconverted::Pending),
            Err(_) => Ok(None),
        }
    }

    /// The object after a configuration is applied to `live`, with its managedFields. `empty` is what an object is created
    /// from.
    pub fn apply(
        &self,
        live: &Value,
        config: &Value,
        empty: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let given = metadata(config).and_then(|metadata| metadata.get("managedFields"));
        if given.is_some_and(|given| !given.is_null()) {
            return Err(ApplyError::ManagedFields);
        }
        let managers = Managers::parse(metadata(live).and_then(|metadata| metadata.get("managedFields")))?;
        let is_first = managers.0.is_empty() && !text(live, "uid").is_empty();
        let live = without_managed_fields(live);
        let managers = match is_first {
            true => self.updated(empty, &live, managers, BEFORE_FIRST_APPLY)?,
            false => managers,
        };
        let applied = self.merged(&live, config, managers.clone(), manager, force);
        let (mut object, managers) = match applied {
            Err(ApplyError::Conflicts(conflicts)) if manager == last_applied::MANAGER => {
                let schema = self.versions.schema(self.api_version);
                let allowed = schema.and_then(|schema| last_applied::fields(schema, self.api_version, &live));
                let left = last_applied::remaining(conflicts, allowed.as_ref());
                match left.is_empty() {
                    true => self.merged(&live, config, managers, manager, true)?,
                    false => return Err(ApplyError::Conflicts(left)),
                }
            }
            applied => applied?,
        };
        if manager == last_applied::MANAGER {
            last_applied::refresh(&mut object, config);
        }
        set_managed_fields(&mut object, managers.to_value());
        Ok(object)
    }

    /// Merges a configuration. The time of the manager is that of the request if the object changes.
    fn merged(
        &self,
        live: &Value,
        config: &Value,
        managers: Managers,
        manager: &str,
        force: bool,
    ) -> Result<(Value, Managers), ApplyError> {
        if let Some(schema) = self.versions.schema(self.api_version) {
            validate(schema, config, Duplicates::Refused)
                .map_err(|errors| ApplyError::Types { object: self.described(config), errors })?;
            validate(schema, live, Duplicates::Allowed).map_err(|errors| {
                ApplyError::Update(format!(
                    "failed to create typed live object ({}): {errors}",
                    self.described(live)
                ))
            })?;
        }
        let id = ManagerId::new(manager, Operation::Apply, self.api_version, self.subresource);
        let writer = Writer { id: &id, api_version: self.api_version, versions: self.versions };
        let merged = writer.apply(live, config, managers, force)?;
        let mut managers = strip(merged.managers, &id);
        let object = match merged.object {
            Some(object) => {
                if let Some(managed) = managers.0.get_mut(&id) {
                    managed.time = Some(self.now.to_owned());
                }
                object
            }
            None => live.clone(),
        };
        Ok((object, managers))
    }

    /// How an object is named in an error.
    fn described(&self, object: &Value) -> String {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        // The core group has no name.
        let slash = if self.api_version.contains('/') { "" } else { "/" };
        let (namespace, name) = (text(object, "namespace"), text(object, "name"));
        format!("{namespace}/{name}; {slash}{}, Kind={kind}", self.api_version)
    }

    /// Whatever the update changes belongs to its manager.
    fn updated(
        &self,
        live: &Value,
        new: &Value,
        managers: Managers,
        manager: &str,
    ) -> Result<Managers, UpdateError> {
        // The update first has a manager of its own, to see whether it changes anything.
        let current = ManagerId::new("current-operation", Operation::Update, "", "");
        let writer = Writer { id: &current, api_version: self.api_version, versions: self.versions };
        let mut managers = strip(writer.update(live, new, managers)?, &current);
        if let Some(mut managed) = managers.0.remove(&current) {
            let id = ManagerId::new(manager, Operation::Update, self.api_version, self.subresource);
            if let Some(before) = managers.0.remove(&id) {
                managed.fields = managed.fields.union(&before.fields);
            }
            managed.time = Some(self.now.to_owned());
            managers.0.insert(id, managed);
        }
        Ok(managers)
    }

    /// The managers that count: those of the new object if it has any, otherwise those of the live one. Other endpoints than
    /// the object itself cannot set them. Unreadable ones are none.
    fn recorded(&self, live: &Value, new: &Value) -> Managers {
        let of = |object: &Value| {
            Managers::parse(metadata(object).and_then(|metadata| metadata.get("managedFields")))
        };
        if self.subresource.is_empty() {
            let given = metadata(new).and_then(|metadata| metadata.get("managedFields"));
            if is_reset(given) {
                return Managers::default();
            }
            if let Ok(managers) = of(new)
                && !managers.0.is_empty()
            {
                return managers;
            }
        }
        of(live).unwrap_or_default()
    }
}

/// Whether a request clears all managedFields: it has an empty list, or a single empty entry.
fn is_reset(given: Option<&Value>) -> bool {
    match given.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.is_empty(),
        _ => false,
    }
}

/// Removes the fields that nobody owns from the fields of a manager.
fn strip(mut managers: Managers, id: &ManagerId) -> Managers {
    if let Some(managed) = managers.0.get_mut(id) {
        managed.fields = std::mem::take(&mut managed.fields).difference(&Set::of_fields(&UNOWNED));
        if managed.fields.is_empty() {
            managers.0.remove(id);
        }
    }
    managers
}

fn metadata(object: &Value) -> Option<&Object<String, Value>> {
    object.get("metadata")?.as_object()
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    metadata(object).and_then(|metadata| metadata.get(key)?.as_str()).unwrap_or_default()
}

/// A copy that is compared: managedFields have no managers.
fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

fn set_managed_fields(object: &mut Value, managed: Option<Value>) {
    let Some(fields) = object.as_object_mut() else { return };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return };
    match managed {
        Some(managed) => metadata.insert("managedFields".to_owned(), managed),
        None => metadata.remove("managedFields"),
    };
}

#[cfg(test)]
mod tests;
