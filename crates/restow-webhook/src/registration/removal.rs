//! Whether a CRD can do without the webhook: a pure function.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::Unchanged;

/// Why the webhook cannot be removed from a CRD without a loss.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{crd} needs its conversion webhook: {difference}, and objects may be stored in {stored} and requested in {served}; \
    without the webhook, API servers would change only apiVersion, and drop fields that a version does not have. Stop \
    serving all versions but one and migrate its objects first (restow migrate {crd} --prune-stored-versions)"
)]
pub struct StillNeeded {
    crd: String,
    difference: String,
    stored: String,
    served: String,
}

/// Whether a CRD needs no conversion: only one version is stored and served. The same schema in all versions is not enough:
/// the same field can have another unit, or an enum other names.
///
/// # Errors
/// When it needs one.
pub fn may_unregister(crd: &CustomResourceDefinition) -> Result<(), StillNeeded> {
    let name = |name: &str| name.to_owned();
    let storage =
        crd.spec.versions.iter().filter(|version| version.storage).map(|version| name(&version.name));
    let status = crd.status.as_ref();
    let mut stored: Vec<String> =
        status.and_then(|status| status.stored_versions.clone()).unwrap_or_default();
    stored.extend(storage);
    let served: Vec<String> = crd
        .spec
        .versions
        .iter()
        .filter(|version| version.served)
        .map(|version| name(&version.name))
        .collect();
    let mut used = [stored.clone(), served.clone()].concat();
    used.sort();
    used.dedup();
    if used.len() <= 1 {
        return Ok(());
    }
    stored.sort();
    stored.dedup();
    let difference = match Unchanged::of(crd) {
        Ok(_) => "its versions have the same schema, but values may have another meaning in each".to_owned(),
        Err(differ) => differ.to_string(),
    };
    Err(StillNeeded {
        crd: crd.metadata.name.clone().unwrap_or_default(),
        difference,
        stored: stored.join(", "),
        served: served.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn crd(versions: &[(&str, bool, bool, &str)], stored: &[&str]) -> CustomResourceDefinition {
        let version = |(name, served, storage, field): &(&str, bool, bool, &str)| -> Value {
            let properties = json!({"spec": {"type": "object", "properties": {*field: {"type": "string"}}}});
            json!({
                "name": name, "served": served, "storage": storage,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
            })
        };
        serde_json::from_value(json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": versions.iter().map(version).collect::<Vec<_>>(),
            },
            "status": {"storedVersions": stored},
        }))
        .unwrap()
    }

    #[test]
    fn a_webhook_is_removed_only_if_nothing_needs_a_conversion() {
        let (same, other) = ("color", "colour");
        for (what, crd, expected) in [
            (
                "the same schemas, with values that may have another meaning",
                crd(&[("v1", true, false, same), ("v2", true, true, same)], &["v1", "v2"]),
                false,
            ),
            ("two are served", crd(&[("v1", true, false, same), ("v2", true, true, other)], &["v2"]), false),
            (
                "two are stored",
                crd(&[("v1", false, false, same), ("v2", true, true, other)], &["v1", "v2"]),
                false,
            ),
            (
                "another one is served",
                crd(&[("v1", true, false, same), ("v2", false, true, other)], &["v2"]),
                false,
            ),
            (
                "only one is left",
                crd(&[("v1", false, false, same), ("v2", true, true, other)], &["v2"]),
                true,
            ),
        ] {
            assert_eq!(may_unregister(&crd).is_ok(), expected, "{what}");
        }
        let error =
            may_unregister(&crd(&[("v1", true, false, same), ("v2", true, true, other)], &["v1", "v2"]));
        let text = error.unwrap_err().to_string();
        for words in ["widgets.example.com needs", "v1, v2", "restow migrate widgets.example.com"] {
            assert!(text.contains(words), "{words:?} in {text}");
        }
    }
}
