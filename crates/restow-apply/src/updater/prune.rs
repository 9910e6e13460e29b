//! Removes what a manager applied before and does not any more.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{UpdateError, Writer};
use crate::managers::{Managed, Managers};
use crate::schema::Schema;
use crate::set::Set;
use crate::typed::field_set::field_set;
use crate::typed::remove::remove;

impl Writer<'_> {
    /// The merged object without what only the last configuration had. `managers` have the new configuration.
    pub(super) fn pruned(
        &self,
        merged: &Value,
        managers: &Managers,
        last: &Managed,
    ) -> Result<Value, UpdateError> {
        let version = &last.api_version;
        let (Some(in_last), Some(schema)) = (self.converted(merged, version)?, self.versions.schema(version))
        else {
            return Ok(merged.clone());
        };
        let pruned = remove(schema, &in_last, &named(schema, &last.fields));
        let pruned = self.with_owned(in_last.clone(), pruned, version, managers)?;
        let Some(pruned) = self.converted(&pruned, version)? else { return Ok(merged.clone()) };
        // Only what the manager applied is removed, whatever the conversions made of the rest.
        let (left, before) =
            (named(schema, &field_set(schema, &pruned)), named(schema, &field_set(schema, &in_last)));
        let gone = before.difference(&left).intersection(&named(schema, &last.fields));
        let pruned = remove(schema, &in_last, &gone);
        Ok(self.converted(&pruned, self.api_version)?.unwrap_or(pruned))
    }

    /// The pruned object with what any manager owns, version by version; that of the last configuration comes first, because
    /// what its fields need to be converted may be among them.
    fn with_owned(
        &self,
        mut merged: Value,
        mut pruned: Value,
        first: &str,
        managers: &Managers,
    ) -> Result<Value, UpdateError> {
        let mut owned: BTreeMap<&str, Set> = BTreeMap::new();
        for managed in managers.0.values() {
            let set = owned.entry(&managed.api_version).or_default();
            *set = std::mem::take(set).union(&managed.fields);
        }
        let of_first = owned.remove_entry(first);
        for (version, set) in of_first.into_iter().chain(owned) {
            let Some(schema) = self.versions.schema(version) else { continue };
            let (Some(whole), Some(rest)) =
                (self.converted(&merged, version)?, self.converted(&pruned, version)?)
            else {
                continue;
            };
            let all = named(schema, &field_set(schema, &whole));
            let left = named(schema, &field_set(schema, &rest)).union(&named(schema, &set));
            pruned = remove(schema, &whole, &all.difference(&left));
            merged = whole;
        }
        Ok(pruned)
    }
}

fn named(schema: &Schema, set: &Set) -> Set {
    set.with_named_fields(schema, Some(schema.root()))
}
