//! How writes change the managers of fields.
//!
//! An update makes its manager the owner of all it changes. An apply merges a configuration, makes its manager an owner of
//! all that is in it, and removes what the manager applied before and does not any more, if nobody else owns it.

mod prune;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::element::same;
use crate::managers::{Managed, ManagerId, Managers};
use crate::schema::Schema;
use crate::set::{Path, Set};
use crate::typed::TypeErrors;
use crate::typed::compare::{Comparison, compare};
use crate::typed::field_set::field_set;
use crate::typed::merge::merge;
use crate::typed::reconcile::reconcile;

/// The versions of a resource: their schemas, and how objects are converted between them.
pub trait Versions {
    /// The schema of a version; none if the version is unknown.
    fn schema(&self, api_version: &str) -> Option<&Schema>;

    /// An object, which has its `apiVersion`, in another version.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Unconverted>;

    /// The fields of a version that the endpoint of the write does not change.
    fn reset_fields(&self, api_version: &str) -> Option<&Set>;
}

/// Why an object is not converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unconverted {
    /// The version does not exist any more: its managers are dropped.
    #[error("the version is unknown")]
    Missing,
    /// The conversion failed.
    #[error("{0}")]
    Failed(String),
    /// The conversion has to be done elsewhere first; then everything is computed again.
    #[error("the conversion is not done yet")]
    Pending,
}

/// A field that another manager owns with another value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The other manager.
    pub manager: ManagerId,
    /// The field.
    pub path: Path,
}

/// Why managers cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// Other managers own fields with other values.
    #[error("there are {} conflicts with other managers", .0.len())]
    Conflicts(Vec<Conflict>),
    /// An object does not fit its type.
    #[error("{step}")]
    Types {
        /// What failed.
        step: &'static str,
        /// Where and why.
        #[source]
        errors: TypeErrors,
    },
    /// An object cannot be converted.
    #[error(transparent)]
    Conversion(#[from] Unconverted),
}

pub(crate) fn types(step: &'static str) -> impl Fn(TypeErrors) -> UpdateError {
    move |errors| UpdateError::Types { step, errors }
}

/// A write by a manager, in a version.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// The manager.
    pub id: &'a ManagerId,
    /// The version of the objects.
    pub api_version: &'a str,
    /// All versions.
    pub versions: &'a dyn Versions,
}

/// The result of an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// The merged object; none if it is the live one.
    pub object: Option<Value>,
    /// The managers of its fields.
    pub managers: Managers,
}

/// The changes in one version.
struct Changes {
    /// What gets another value, or one at all.
    set: Set,
    removed: Set,
}

impl From<Comparison> for Changes {
    fn from(comparison: Comparison) -> Self {
        Self { set: comparison.modified.union(&comparison.added), removed: comparison.removed }
    }
}

impl Writer<'_> {
    /// The managers after an update from `live` to `new`.
    pub fn update(&self, live: &Value, new: &Value, managers: Managers) -> Result<Managers, UpdateError> {
        let managers = self.reconciled(live, managers)?;
        let (mut managers, comparison) = self.changed(live, new, managers, None, true)?;
        let before = managers.0.remove(self.id).map(|managed| managed.fields).unwrap_or_default();
        let fields =
            before.difference(&comparison.removed).union(&comparison.modified).union(&comparison.added);
        let fields = self.without_reset_fields(fields);
        if !fields.is_empty() {
            let managed = Managed { api_version: self.api_version.to_owned(), fields, time: None };
            managers.0.insert(self.id.clone(), managed);
        }
        Ok(managers)
    }

    /// The object and its managers after a configuration is applied. With `force`, fields of other managers are taken over.
    pub fn apply(
        &self,
        live: &Value,
        config: &Value,
        managers: Managers,
        force: bool,
    ) -> Result<Merged, UpdateError> {
        let schema = self.schema()?;
        let mut managers = self.reconciled(live, managers)?;
        let merged = merge(schema, live, config).map_err(types("failed to merge config"))?;
        let last = managers.0.remove(self.id);
        let fields = self.without_reset_fields(field_set(schema, config));
        let time = last.as_ref().and_then(|last| last.time.clone());
        managers
            .0
            .insert(self.id.clone(), Managed { api_version: self.api_version.to_owned(), fields, time });
        let object = match &last {
            Some(last) if !last.fields.is_empty() => self.pruned(&merged, &managers, last)?,
            _ => merged,
        };
        let (managers, _) = self.changed(live, &object, managers, Some(self.id), force)?;
        let object = (!same(live, &object)).then_some(object);
        Ok(Merged { object, managers })
    }

    fn schema(&self) -> Result<&Schema, UpdateError> {
        self.versions.schema(self.api_version).ok_or(UpdateError::Conversion(Unconverted::Missing))
    }

    fn without_reset_fields(&self, fields: Set) -> Set {
        match self.versions.reset_fields(self.api_version) {
            Some(reset) => fields.recursive_difference(reset),
            None => fields,
        }
    }

    /// An object in a version; none if the version is gone.
    fn converted(&self, object: &Value, api_version: &str) -> Result<Option<Value>, UpdateError> {
        if object.get("apiVersion").and_then(Value::as_str) == Some(api_version) {
            return Ok(Some(object.clone()));
        }
        match self.versions.convert(object, api_version) {
            Ok(converted) => Ok(Some(converted)),
            Err(Unconverted::Missing) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The managers under the current schemas, without those of versions that are gone.
    fn reconciled(&self, live: &Value, managers: Managers) -> Result<Managers, UpdateError> {
        let mut kept = BTreeMap::new();
        for (id, mut managed) in managers.0 {
            if managed.api_version != self.api_version
                && self.converted(live, &managed.api_version)?.is_none()
            {
                continue;
            }
            let Some(schema) = self.versions.schema(&managed.api_version) else { continue };
            if let Some(fields) = reconcile(schema, &managed.fields) {
                managed.fields = fields;
            }
            kept.insert(id, managed);
        }
        Ok(Managers(kept))
    }

    /// The managers without what changes from them, and the changes in the version of the write.
    fn changed(
        &self,
        live: &Value,
        new: &Value,
        managers: Managers,
        keep: Option<&ManagerId>,
        force: bool,
    ) -> Result<(Managers, Comparison), UpdateError> {
        let own = self.compare(self.api_version, live, new)?.unwrap_or_default();
        let mut comparisons = BTreeMap::from([(self.api_version.to_owned(), Changes::from(own.clone()))]);
        let (mut kept, mut conflicts) = (BTreeMap::new(), Vec::new());
        for (id, mut managed) in managers.0 {
            if keep == Some(&id) {
                kept.insert(id, managed);
                continue;
            }
            if !comparisons.contains_key(&managed.api_version) {
                let Some(comparison) = self.compare(&managed.api_version, live, new)? else { continue };
                comparisons.insert(managed.api_version.clone(), comparison.into());
            }
            let Some(changes) = comparisons.get(&managed.api_version) else { continue };
            if !force {
                let paths = managed.fields.intersection(&changes.set).paths();
                conflicts.extend(paths.into_iter().map(|path| Conflict { manager: id.clone(), path }));
            }
            managed.fields = managed.fields.difference(&changes.set).difference(&changes.removed);
            if !managed.fields.is_empty() {
                kept.insert(id, managed);
            }
        }
        if !conflicts.is_empty() {
            return Err(UpdateError::Conflicts(conflicts));
        }
        kept.retain(|_, managed| !managed.fields.is_empty());
        Ok((Managers(kept), own))
    }

    /// The changes in a version; none if the version is gone.
    fn compare(
        &self,
        api_version: &str,
        live: &Value,
        new: &Value,
    ) -> Result<Option<Comparison>, UpdateError> {
        let Some(schema) = self.versions.schema(api_version) else { return Ok(None) };
        let found = if api_version == self.api_version {
            compare(schema, live, new)
        } else {
            let (old, new) = (self.converted(live, api_version)?, self.converted(new, api_version)?);
            let (Some(old), Some(new)) = (old, new) else { return Ok(None) };
            compare(schema, &old, &new)
        };
        let comparison = found.map_err(types("failed to compare objects"))?;
        Ok(Some(comparison.without(self.versions.reset_fields(api_version))))
    }
}
