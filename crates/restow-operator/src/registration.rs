//! Whether and how the CRD in the cluster is changed: a pure decision.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionVersion,
};
use serde_json::{Map, Value, json};

/// Why a CRD is not registered.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum RegistrationError {
    /// Objects may be stored in a version that the new definition does not have.
    #[error(
        "the cluster's {name} may have objects that are stored as {}, which the operator's definition does not have; run a \
         version of the operator that has it, until status.storedVersions has only {storage}",
        versions.join(", ")
    )]
    StillStored {
        /// The name of the CRD.
        name: String,
        /// The versions that are missing.
        versions: Vec<String>,
        /// The storage version of the operator's definition.
        storage: String,
    },
    /// The definition is of something else.
    #[error(
        "{name} is {found} in the cluster, but {wanted} in the operator's definition; this cannot be changed"
    )]
    AnotherScope {
        /// The name of the CRD.
        name: String,
        /// The scope in the cluster.
        found: String,
        /// The scope of the definition.
        wanted: String,
    },
}

/// Who converts the objects of a CRD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// What the definition says; nobody else's conversion is removed.
    AsDefined,
    /// The operator's webhook, which the CRD calls already.
    Registered,
    /// The operator's webhook, which the CRD does not call yet.
    NotRegistered,
}

/// What to do about a CRD.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plan {
    /// Create it.
    Create,
    /// Write this merge patch. It leaves the storage version as it is.
    Change(Value),
    /// Only the storage version differs: write this merge patch when all API servers know all versions.
    Store(Value),
    /// It is as it should be.
    Leave,
}

/// What to do about the CRD that is in the cluster. Patches have no preconditions yet.
///
/// The storage version changes in a write of its own: an API server that has not seen the new versions yet could not read what
/// another one stores. Labels, annotations and finalizers of others stay. So does the conversion, if the definition has none:
/// then somebody else registers it. A CA bundle stays if the definition's conversion has none. `ignore_rest` is for a server
/// that stores the definition in other words than it was sent: then only the storage version is compared.
pub(crate) fn plan(
    found: Option<&CustomResourceDefinition>,
    wanted: &CustomResourceDefinition,
    conversion: Conversion,
    ignore_rest: bool,
) -> Result<Plan, RegistrationError> {
    let Some(found) = found else { return Ok(Plan::Create) };
    check(found, wanted)?;
    if !ignore_rest {
        let change = change(found, wanted, conversion);
        if change != json!({}) || conversion == Conversion::NotRegistered {
            return Ok(Plan::Change(change));
        }
    }
    if storage_version(found) == storage_version(wanted) {
        return Ok(Plan::Leave);
    }
    Ok(Plan::Store(json!({"spec": {"versions": wanted.spec.versions}})))
}

fn check(
    found: &CustomResourceDefinition,
    wanted: &CustomResourceDefinition,
) -> Result<(), RegistrationError> {
    let name = wanted.metadata.name.clone().unwrap_or_default();
    if found.spec.scope != wanted.spec.scope {
        let (found, wanted) = (found.spec.scope.clone(), wanted.spec.scope.clone());
        return Err(RegistrationError::AnotherScope { name, found, wanted });
    }
    let status = found.status.iter().flat_map(|status| status.stored_versions.iter().flatten());
    let mut stored: Vec<String> = status.cloned().chain([storage_version(found)]).collect();
    stored.sort();
    stored.dedup();
    let is_missing = |version: &String| !wanted.spec.versions.iter().any(|known| known.name == *version);
    stored.retain(is_missing);
    if stored.is_empty() {
        return Ok(());
    }
    Err(RegistrationError::StillStored { name, versions: stored, storage: storage_version(wanted) })
}

/// A merge patch of everything that differs but the storage version.
fn change(
    found: &CustomResourceDefinition,
    wanted: &CustomResourceDefinition,
    conversion: Conversion,
) -> Value {
    let mut spec = Map::new();
    let versions = stored_as(&wanted.spec.versions, &storage_version(found));
    if versions != found.spec.versions {
        spec.insert("versions".to_owned(), json!(versions));
    }
    let names = with_defaults(&wanted.spec.names, &found.spec.names);
    if names != found.spec.names {
        spec.insert("names".to_owned(), all_of(json!(names), &json!(found.spec.names)));
    }
    let unknown = wanted.spec.preserve_unknown_fields;
    if unknown.is_some() && unknown != found.spec.preserve_unknown_fields {
        spec.insert("preserveUnknownFields".to_owned(), json!(unknown));
    }
    if conversion == Conversion::AsDefined
        && let Some(wanted) = &wanted.spec.conversion
    {
        let wanted = with_bundle(found.spec.conversion.as_ref(), wanted);
        if Some(&wanted) != found.spec.conversion.as_ref() {
            let former = json!(found.spec.conversion);
            spec.insert("conversion".to_owned(), all_of(json!(wanted), &former));
        }
    }
    let mut change = json!({});
    if !spec.is_empty() {
        change["spec"] = Value::Object(spec);
    }
    for (field, found, wanted) in [
        ("labels", &found.metadata.labels, &wanted.metadata.labels),
        ("annotations", &found.metadata.annotations, &wanted.metadata.annotations),
    ] {
        let has = |(name, value): &(&String, &String)| {
            found.as_ref().and_then(|all| all.get(*name)) == Some(*value)
        };
        let missing: Map<String, Value> = wanted
            .iter()
            .flatten()
            .filter(|entry| !has(entry))
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        if !missing.is_empty() {
            change["metadata"][field] = Value::Object(missing);
        }
    }
    change
}

/// The versions, with another storage version.
fn stored_as(
    versions: &[CustomResourceDefinitionVersion],
    storage: &str,
) -> Vec<CustomResourceDefinitionVersion> {
    let stored = |version: &CustomResourceDefinitionVersion| CustomResourceDefinitionVersion {
        storage: version.name == storage,
        ..version.clone()
    };
    versions.iter().map(stored).collect()
}

/// The names, with those that API servers fill in.
fn with_defaults(
    wanted: &CustomResourceDefinitionNames,
    found: &CustomResourceDefinitionNames,
) -> CustomResourceDefinitionNames {
    let mut names = wanted.clone();
    names.singular = names.singular.or_else(|| found.singular.clone());
    names.list_kind = names.list_kind.or_else(|| found.list_kind.clone());
    names
}

/// A merge patch that leaves just what is wanted: fields that are only in the former value are null.
fn all_of(mut wanted: Value, former: &Value) -> Value {
    if let (Value::Object(wanted), Value::Object(former)) = (&mut wanted, former) {
        for (name, value) in former {
            match wanted.get_mut(name) {
                None => drop(wanted.insert(name.clone(), Value::Null)),
                Some(kept) => *kept = all_of(kept.take(), value),
            }
        }
    }
    wanted
}

fn with_bundle(
    found: Option<&CustomResourceConversion>,
    wanted: &CustomResourceConversion,
) -> CustomResourceConversion {
    let mut conversion = wanted.clone();
    let bundle = found.and_then(|found| found.webhook.as_ref()?.client_config.as_ref()?.ca_bundle.clone());
    if let Some(client) = conversion.webhook.as_mut().and_then(|webhook| webhook.client_config.as_mut())
        && client.ca_bundle.is_none()
    {
        client.ca_bundle = bundle;
    }
    conversion
}

/// The version in which objects are stored.
pub(crate) fn storage_version(definition: &CustomResourceDefinition) -> String {
    let storage = definition.spec.versions.iter().find(|version| version.storage);
    storage.map(|version| version.name.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
