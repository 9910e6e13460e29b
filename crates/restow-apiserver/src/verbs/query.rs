//! Which objects a list or a watch selects, and how they are shown.

use std::sync::Arc;

use crate::registry::resource::Resource;
use crate::verbs::selection::Selection;
use crate::verbs::view::View;

/// Which objects a list or a watch selects, and how they are shown.
#[derive(Clone)]
pub(crate) struct ListQuery {
    pub resource: Arc<Resource>,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The selectors.
    pub selection: Selection,
    /// How objects are shown.
    pub view: View,
}

impl ListQuery {
    /// The prefix of all selected keys. A list of one name reads one object.
    pub(crate) fn range(&self) -> String {
        let namespace = match (self.namespace.as_str(), self.selection.namespace()) {
            ("", Some(namespace)) => namespace,
            (namespace, _) => namespace,
        };
        let named = !self.resource.namespaced || !namespace.is_empty();
        match self.selection.name() {
            Some(name) if named => self.resource.key(namespace, name),
            _ => self.prefix(),
        }
    }

    /// The prefix that keys in continue tokens are relative to.
    pub(crate) fn prefix(&self) -> String {
        self.resource.key(&self.namespace, "")
    }
}
