//! The selectors of a list, a watch or a deletecollection.

use std::sync::Arc;

use serde_json::Value;

use crate::http::options::Options;
use crate::http::status::StatusError;
use crate::object::selector::{FieldSelector, LabelSelector, Selectable};
use crate::registry::resource::{Implementation, Resource};

/// Selectors; the default selects all objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection(Option<Arc<Selectors>>);

#[derive(Debug)]
struct Selectors {
    labels: LabelSelector,
    fields: FieldSelector,
    selectable: Selectable,
}

impl Selection {
    /// Parses the selectors of a request.
    pub(crate) fn of(resource: &Resource, version: &str, options: &Options) -> Result<Self, StatusError> {
        if options.label_selector.is_empty() && options.field_selector.is_empty() {
            return Ok(Self::default());
        }
        let selectable = match &resource.implementation {
            Implementation::BuiltIn(_) => Selectable::built_in(&resource.name.group, &resource.name.resource),
            Implementation::Custom(custom) => {
                Selectable::custom(resource.namespaced, custom.selectable(version))
            }
        };
        let labels = LabelSelector::parse(&options.label_selector)?;
        let fields = FieldSelector::parse(&options.field_selector, &selectable)?;
        if labels.is_everything() && fields.is_everything() {
            return Ok(Self::default());
        }
        Ok(Self(Some(Arc::new(Selectors { labels, fields, selectable }))))
    }

    /// Whether all objects are selected.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let Some(selectors) = &self.0 else { return true };
        selectors.labels.matches(object) && selectors.fields.matches(object, &selectors.selectable)
    }

    /// Whether the metadata of objects is enough to select them.
    pub(crate) fn is_of_metadata(&self) -> bool {
        let Some(selectors) = &self.0 else { return true };
        selectors.fields.terms.iter().all(|term| term.field.starts_with("metadata."))
    }

    /// The single name that is selected, if any.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.as_ref()?.fields.exact("metadata.name").filter(|name| !name.is_empty())
    }

    /// The single namespace that is selected, if any.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.0.as_ref()?.fields.exact("metadata.namespace").filter(|namespace| !namespace.is_empty())
    }
}
