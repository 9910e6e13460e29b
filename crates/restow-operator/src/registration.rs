//! Whether and how the CRD in the cluster is changed: a pure decision.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition,
};

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

/// What to do about a CRD.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plan {
    /// Create this one.
    Create(Box<CustomResourceDefinition>),
    /// Replace the one that was read with this one. It has the resourceVersion that was read.
    Replace(Box<CustomResourceDefinition>),
    /// It is as it should be.
    Leave,
}

/// What to do about the CRD that is in the cluster.
///
/// Labels, annotations and finalizers of others stay. So does the conversion, if the definition has none: then somebody
/// else registers it. A CA bundle stays if the definition's conversion has none.
pub(crate) fn plan(
    found: Option<&CustomResourceDefinition>,
    wanted: &CustomResourceDefinition,
) -> Result<Plan, RegistrationError> {
    let Some(found) = found else { return Ok(Plan::Create(Box::new(wanted.clone()))) };
    let name = wanted.metadata.name.clone().unwrap_or_default();
    if found.spec.scope != wanted.spec.scope {
        let (found, wanted) = (found.spec.scope.clone(), wanted.spec.scope.clone());
        return Err(RegistrationError::AnotherScope { name, found, wanted });
    }
    let stored = found.status.iter().flat_map(|status| status.stored_versions.iter().flatten());
    let is_missing = |version: &&String| !wanted.spec.versions.iter().any(|known| known.name == **version);
    let versions: Vec<String> = stored.filter(is_missing).cloned().collect();
    if !versions.is_empty() {
        return Err(RegistrationError::StillStored { name, versions, storage: storage_version(wanted) });
    }
    let mut next = found.clone();
    next.spec = wanted.spec.clone();
    next.spec.conversion = conversion(found.spec.conversion.as_ref(), wanted.spec.conversion.as_ref());
    for (found, wanted) in [
        (&mut next.metadata.labels, &wanted.metadata.labels),
        (&mut next.metadata.annotations, &wanted.metadata.annotations),
    ] {
        if let Some(wanted) = wanted {
            found.get_or_insert_default().extend(wanted.clone());
        }
    }
    Ok(if next == *found { Plan::Leave } else { Plan::Replace(Box::new(next)) })
}

fn conversion(
    found: Option<&CustomResourceConversion>,
    wanted: Option<&CustomResourceConversion>,
) -> Option<CustomResourceConversion> {
    let Some(wanted) = wanted else { return found.cloned() };
    let mut conversion = wanted.clone();
    let bundle = found.and_then(|found| found.webhook.as_ref()?.client_config.as_ref()?.ca_bundle.clone());
    if let Some(client) = conversion.webhook.as_mut().and_then(|webhook| webhook.client_config.as_mut())
        && client.ca_bundle.is_none()
    {
        client.ca_bundle = bundle;
    }
    Some(conversion)
}

/// The version in which objects are stored.
pub(crate) fn storage_version(definition: &CustomResourceDefinition) -> String {
    let storage = definition.spec.versions.iter().find(|version| version.storage);
    storage.map(|version| version.name.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn crd(changes: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
        let mut object = json!({
            "metadata": {"name": "pages.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Page", "plural": "pages"},
                "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v1beta1", "served": true, "storage": false}],
            },
        });
        changes(&mut object);
        serde_json::from_value(object).unwrap()
    }

    fn webhook(bundle: Option<&str>) -> Value {
        let mut client = json!({"service": {"namespace": "n", "name": "s"}});
        if let Some(bundle) = bundle {
            client["caBundle"] = json!(bundle);
        }
        json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}})
    }

    #[test]
    fn a_missing_crd_is_created_and_an_equal_one_is_left() {
        let wanted = crd(|_| {});
        assert_eq!(plan(None, &wanted), Ok(Plan::Create(Box::new(wanted.clone()))));
        let found = crd(|object| {
            object["metadata"]["resourceVersion"] = json!("7");
            object["metadata"]["labels"] = json!({"a": "b"});
            object["spec"]["conversion"] = webhook(Some("Yg=="));
            object["status"] = json!({"storedVersions": ["v1"]});
        });
        assert_eq!(plan(Some(&found), &wanted), Ok(Plan::Leave));
    }

    #[test]
    fn a_crd_that_differs_is_replaced_and_what_others_wrote_stays() {
        let found = crd(|object| {
            object["metadata"] =
                json!({"name": "pages.example.com", "resourceVersion": "7", "labels": {"a": "b", "c": "d"}});
            object["spec"]["versions"][0]["storage"] = json!(false);
            object["spec"]["versions"][1]["storage"] = json!(true);
            object["spec"]["conversion"] = webhook(Some("Yg=="));
            object["status"] = json!({"storedVersions": ["v1beta1"]});
        });
        let wanted = crd(|object| {
            object["metadata"]["labels"] = json!({"c": "e"});
            object["spec"]["conversion"] = webhook(None);
        });
        let expected = crd(|object| {
            object["metadata"] =
                json!({"name": "pages.example.com", "resourceVersion": "7", "labels": {"a": "b", "c": "e"}});
            object["spec"]["conversion"] = webhook(Some("Yg=="));
            object["status"] = json!({"storedVersions": ["v1beta1"]});
        });
        assert_eq!(plan(Some(&found), &wanted), Ok(Plan::Replace(Box::new(expected))));
    }

    #[test]
    fn a_version_that_may_still_be_stored_is_not_dropped() {
        let found = crd(|object| object["status"] = json!({"storedVersions": ["v1alpha1", "v1"]}));
        let refused = plan(Some(&found), &crd(|_| {})).unwrap_err().to_string();
        assert!(refused.contains("stored as v1alpha1") && refused.contains("has only v1"), "{refused}");
        let found = crd(|object| object["spec"]["scope"] = json!("Cluster"));
        assert!(matches!(plan(Some(&found), &crd(|_| {})), Err(RegistrationError::AnotherScope { .. })));
    }
}
