//! Roles and bindings as they are stored, as far as they matter here.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::rule::{Rule, list};
use crate::auth::impersonation::is_service_account;
use crate::auth::user::User;

/// What a role has that matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Role {
    #[serde(deserialize_with = "list")]
    pub(super) rules: Vec<Rule>,
    pub(super) metadata: Labels,
    pub(super) aggregation_rule: Option<Aggregation>,
}

/// What metadata has that matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Labels {
    pub(super) labels: Option<BTreeMap<String, String>>,
}

/// Whose rules a cluster role gathers.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Aggregation {
    #[serde(deserialize_with = "list")]
    pub(super) cluster_role_selectors: Vec<Selector>,
}

/// Which cluster roles.
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
    /// Whether it picks something with these labels; what cannot be understood picks nothing.
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

/// What a binding has that matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Binding {
    #[serde(deserialize_with = "list")]
    pub(super) subjects: Vec<Subject>,
    pub(super) role_ref: RoleRef,
}

/// The role that a binding gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RoleRef {
    pub(super) kind: String,
    pub(super) name: String,
}

/// Whom a binding is for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Subject {
    kind: String,
    name: String,
    namespace: Option<String>,
}

impl Subject {
    /// Whether it is somebody; a service account without a namespace is of the binding's own.
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

    /// As kube-apiserver tells it.
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
