//! Validates the rules of a role, as kube-apiserver does.

use serde_json::Value;

use crate::http::status::{Cause, MOST_CAUSES};

/// The errors of the rules of a role.
pub(crate) fn validate(kind: &str, role: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, rule) in role["rules"].as_array().into_iter().flatten().enumerate() {
        if causes.len() > MOST_CAUSES {
            return causes;
        }
        causes.extend(validate_rule(rule, kind == "Role", &format!("rules[{index}]")));
    }
    let aggregation = &role["aggregationRule"];
    if kind == "ClusterRole" && aggregation.is_object() && is_empty(aggregation, "clusterRoleSelectors") {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        causes.push(Cause::required("aggregationRule.clusterRoleSelectors", why));
    }
    causes
}

fn validate_rule(rule: &Value, namespaced: bool, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut require = |field: &str, why: &str| {
        if is_empty(rule, field) {
            causes.push(Cause::required(format!("{path}.{field}"), why));
        }
    };
    require("verbs", "verbs must contain at least one value");
    if is_empty(rule, "nonResourceURLs") {
        require("apiGroups", "resource rules must supply at least one api group");
        require("resources", "resource rules must supply at least one resource");
        return causes;
    }
    let mut refuse = |why: &str| {
        causes.push(Cause::invalid(format!("{path}.nonResourceURLs"), &rule["nonResourceURLs"], why));
    };
    if namespaced {
        refuse("namespaced rules cannot apply to non-resource URLs");
    }
    if !["apiGroups", "resources", "resourceNames"].iter().all(|field| is_empty(rule, field)) {
        refuse("rules cannot apply to both regular resources and non-resource URLs");
    }
    causes
}

fn is_empty(object: &Value, field: &str) -> bool {
    object[field].as_array().is_none_or(Vec::is_empty)
}
