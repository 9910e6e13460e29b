//! Which tool manages a CRD, and would undo a change that is made past it.

use serde_json::Value;

/// A tool that keeps objects as its source has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrdManager {
    /// The tool.
    pub tool: &'static str,
    /// What of the object shows it.
    pub evidence: String,
}

/// Prefixes of labels and annotations that a tool sets. Flux uses Helm, so it comes first.
const KEYS: [(&str, &str); 7] = [
    ("kustomize.toolkit.fluxcd.io/", "Flux"),
    ("helm.toolkit.fluxcd.io/", "Flux"),
    ("argocd.argoproj.io/", "Argo CD"),
    ("meta.helm.sh/", "Helm"),
    ("helm.sh/chart", "Helm"),
    ("kapp.k14s.io/", "kapp"),
    ("config.k8s.io/owning-inventory", "a tool of cli-utils"),
];
/// Names of field managers.
const MANAGERS: [(&str, &str); 6] = [
    ("kustomize-controller", "Flux"),
    ("helm-controller", "Flux"),
    ("argocd-controller", "Argo CD"),
    ("argocd-application-controller", "Argo CD"),
    ("helm", "Helm"),
    ("Helm", "Helm"),
];
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The tool that manages an object, by its labels, annotations and managedFields.
pub fn crd_manager(object: &Value) -> Option<CrdManager> {
    let metadata = &object["metadata"];
    let keys = |field: &'static str| {
        metadata[field]
            .as_object()
            .into_iter()
            .flatten()
            .map(move |(key, _)| (field.trim_end_matches('s'), key))
    };
    let keyed = KEYS.iter().find_map(|(prefix, tool)| {
        let (field, key) =
            keys("labels").chain(keys("annotations")).find(|(_, key)| key.starts_with(prefix))?;
        Some(CrdManager { tool, evidence: format!("its {field} {key}") })
    });
    let labelled = || {
        let by = metadata["labels"][MANAGED_BY].as_str()?;
        let tool = ["Helm", "Flux"].into_iter().find(|tool| tool.eq_ignore_ascii_case(by))?;
        Some(CrdManager { tool, evidence: format!("its label {MANAGED_BY}: {by}") })
    };
    let writes = || {
        let entries = metadata["managedFields"].as_array()?;
        let own = entries.iter().filter(|entry| entry["subresource"].as_str().unwrap_or_default().is_empty());
        let mut names = own.filter_map(|entry| entry["manager"].as_str());
        names.find_map(|name| {
            let (_, tool) = MANAGERS.iter().find(|(manager, _)| *manager == name)?;
            Some(CrdManager { tool, evidence: format!("its field manager {name}") })
        })
    };
    keyed.or_else(labelled).or_else(writes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_recognized_by_what_it_leaves_on_the_object() {
        for (metadata, expected) in [
            (json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}}), Some("Helm")),
            (json!({"annotations": {"meta.helm.sh/release-name": "x"}}), Some("Helm")),
            (json!({"annotations": {"argocd.argoproj.io/tracking-id": "x"}}), Some("Argo CD")),
            (json!({"labels": {"argocd.argoproj.io/instance": "x"}}), Some("Argo CD")),
            (json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "x"}}), Some("Flux")),
            (
                json!({"labels": {"helm.toolkit.fluxcd.io/name": "x", "app.kubernetes.io/managed-by": "Helm"}}),
                Some("Flux"),
            ),
            (json!({"managedFields": [{"manager": "kustomize-controller"}]}), Some("Flux")),
            (json!({"managedFields": [{"manager": "kubectl"}, {"manager": "helm"}]}), Some("Helm")),
            (json!({"managedFields": [{"manager": "helm", "subresource": "status"}]}), None),
            (json!({"labels": {"app.kubernetes.io/managed-by": "my-operator"}}), None),
            (json!({"managedFields": [{"manager": "kubectl-client-side-apply"}]}), None),
            (json!({}), None),
        ] {
            let found = crd_manager(&json!({"metadata": metadata}));
            assert_eq!(found.as_ref().map(|one| one.tool), expected, "{metadata}");
            assert!(found.is_none_or(|one| !one.evidence.is_empty()));
        }
    }
}
