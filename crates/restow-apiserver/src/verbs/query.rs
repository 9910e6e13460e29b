//! The objects that a list or a watch is about, and how they are shown.

use std::sync::Arc;

use crate::registry::resource::Resource;
use crate::verbs::selection::Selection;
use crate::verbs::view::View;

/// Which objects are wanted, and how they are to look.
#[derive(Clone)]
pub(crate) struct Wanted {
    /// Of which resource.
    pub resource: Arc<Resource>,
    /// In which namespace, empty for all.
    pub namespace: String,
    /// Of those, which.
    pub selection: Selection,
    /// How they look.
    pub view: View,
}

impl Wanted {
    /// What the keys of all of them begin with: a list of one name reads one object.
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

    /// What keys are told below in continue tokens.
    pub(crate) fn prefix(&self) -> String {
        self.resource.key(&self.namespace, "")
    }
}
