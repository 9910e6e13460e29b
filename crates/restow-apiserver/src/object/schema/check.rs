//! Validates objects against their schema, on create, update and update of the status.

use serde_json::Value;

use super::model::{Additional, Schema};
use super::{embedded, lists, rules, validate};
use crate::http::status::{Cause, CauseKind};
use crate::object::path::Path;

/// Reported when CEL rules are not evaluated because the object is invalid.
pub(super) const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing \
     errors to complete validation";

impl Schema {
    /// The errors of a value, such as a default.
    pub(crate) fn check_value(&self, value: &Value) -> Vec<Cause> {
        validate::causes(self, value, None, "")
    }

    /// The errors of an object that is created.
    pub(crate) fn check_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = validate::causes(self, object, None, "");
        causes.extend(embedded::errors(self, object, &Path::default()));
        causes.extend(lists::errors(self, object, &Path::default()));
        self.with_rules(causes, object, None)
    }

    /// The errors of an object that replaces `old`; errors of what was not changed are let pass.
    pub(crate) fn check_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = validate::causes(self, object, Some(old), "");
        causes.extend(embedded::errors(self, object, &Path::default()));
        if lists::errors(self, old, &Path::default()).is_empty() {
            causes.extend(lists::errors(self, object, &Path::default()));
        }
        self.with_rules(causes, object, Some(old))
    }

    /// The errors of an object whose status is to replace the status of `old`.
    pub(crate) fn check_status(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = match (self.properties.get("status"), object.get("status")) {
            (Some(schema), Some(status)) => validate::causes(schema, status, old.get("status"), "status"),
            _ => Vec::new(),
        };
        if lists::errors(self, old, &Path::default()).is_empty() {
            causes.extend(lists::errors(self, object, &Path::default()));
        }
        self.with_rules(causes, object, Some(old))
    }

    /// Whether there is any rule, at any depth.
    fn has_rules(&self) -> bool {
        let additional = match self.additional.as_deref() {
            Some(Additional::Schema(schema)) => schema.has_rules(),
            _ => false,
        };
        !self.rules.is_empty()
            || additional
            || self.properties.values().any(Self::has_rules)
            || self.items.as_deref().is_some_and(Self::has_rules)
    }

    fn with_rules(&self, mut causes: Vec<Cause>, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let blocking = [
            CauseKind::NotSupported,
            CauseKind::Required,
            CauseKind::TooLong,
            CauseKind::TooMany,
            CauseKind::TypeInvalid,
        ];
        if !self.has_rules() {
            return causes;
        }
        if causes.iter().any(|cause| blocking.contains(&cause.kind)) {
            causes.push(Cause::invalid("<nil>", &Value::Null, NOT_CHECKED));
        } else {
            causes.extend(rules::errors(self, object, old, &Path::default()));
        }
        causes
    }
}
