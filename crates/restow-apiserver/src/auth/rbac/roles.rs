//! The fields of stored roles and bindings that authorization needs.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::rule::{Rule, list};
use crate::auth::impersonation::is_service_account;
use crate::auth::user::User;

/// A Role or ClusterRole.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Role {
    #[serde(deserialize_with = "list")]
    pub(super) rules: Vec<Rule>,
    pub(super) metadata: Labels,
    pub(super) aggregation_rule: Option<Aggregation>,
}

/// The labels of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Labels {
    pub(super) labels: Option<BTreeMap<String, String>>,
}

/// An aggregationRule.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Aggregation {
    #[serde(deserialize_with = "list")]
    pub(super) cluster_role_selectors: Vec<Selector>,
}

/// A label selector.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Selector {
    match_labels: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "list")]
    match_expressions: Vec<Requirement>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(deserialize_with = "list")]
    values: Vec<String>,
}

impl Selector {
    /// Whether it matches these labels. An unknown operator matches nothing.
    pub(super) fn picks(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.picks(labels))
    }
}

impl Requirement {
    fn picks(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let among = value.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => among,
            "NotIn" => !among,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Binding {
    #[serde(deserialize_with = "list")]
    pub(super) subjects: Vec<Subject>,
    pub(super) role_ref: RoleRef,
}

/// The role that a binding grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RoleRef {
    pub(super) kind: String,
    pub(super) name: String,
}

/// A user, group or service account of a binding.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Subject {
    kind: String,
    name: String,
    namespace: Option<String>,
}

impl Subject {
    /// Whether it includes a user. A service account without a namespace is in the binding's namespace.
    pub(super) fn is(&self, user: &User, namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => self.name == user.name,
            "Group" => user.is_in(&self.name),
            "ServiceAccount" => {
                let own = self.namespace.as_deref().filter(|own| !own.is_empty()).unwrap_or(namespace);
                !own.is_empty() && is_service_account(&user.name, own, &self.name)
            }
            _ => false,
        }
    }

    /// The text of kube-apiserver.
    pub(super) fn describe(&self, namespace: &str) -> String {
        match (self.kind.as_str(), self.namespace.as_deref().filter(|own| !own.is_empty())) {
            ("ServiceAccount", own) => {
                format!("ServiceAccount {:?}", format!("{}/{}", self.name, own.unwrap_or(namespace)))
            }
            (kind, _) => format!("{kind} {:?}", self.name),
        }
    }
}

/// The API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
