//! The permissions that registering, converting and migrating need, for just the CRDs of an operator.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::webhook::Webhook;

const CRDS: &str = "customresourcedefinitions";
const EXTENSIONS: &str = "apiextensions.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The roles of an operator. Bind them to its service account.
#[derive(Clone, Debug, PartialEq)]
pub struct Permissions {
    /// What is needed in the whole cluster.
    pub cluster_role: ClusterRole,
    /// What is needed in single namespaces: where API servers make themselves known, and where the webhook keeps its certificates.
    pub roles: Vec<Role>,
}

/// The roles that [`Crds`](crate::Crds) needs for these definitions, with this name.
///
/// A CRD cannot be created by name, and lists cannot be limited to names: so the operator may create any CRD, and read the
/// definitions of all. It may change only its own, and it may list and patch only its own objects.
pub fn permissions(name: &str, definitions: &[CustomResourceDefinition]) -> Permissions {
    let crds: Vec<String> = definitions.iter().filter_map(|one| one.metadata.name.clone()).collect();
    let mut rules: Vec<_> = groups(definitions)
        .into_iter()
        .map(|(group, resources)| rule(group, resources, &["list", "patch"]))
        .collect();
    rules.extend([
        rule(EXTENSIONS, [CRDS], &["get", "list", "watch", "create"]),
        named(rule(EXTENSIONS, [CRDS, "customresourcedefinitions/status"], &["patch"]), crds),
        rule("apiregistration.k8s.io", ["apiservices"], &["list"]),
        rule("internal.apiserver.k8s.io", ["storageversions"], &["get", "watch"]),
        PolicyRule {
            non_resource_urls: Some(
                ["/api", "/api/*", "/apis", "/apis/*", "/readyz"].map(str::to_owned).to_vec(),
            ),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        },
    ]);
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Permissions {
        cluster_role: ClusterRole { metadata, rules: Some(rules), aggregation_rule: None },
        roles: vec![
            role(name, "kube-system", [rule("coordination.k8s.io", ["leases"], &["list"])]),
            role(name, "default", [rule("discovery.k8s.io", ["endpointslices"], &["list"])]),
        ],
    }
}

impl Permissions {
    /// Adds what a webhook needs: its Secret, the Leases of its replicas and of the leader election in its namespace, Events
    /// about CRDs, and its admission configurations.
    #[must_use]
    pub fn with_webhook(mut self, webhook: &Webhook) -> Self {
        let name = self.name();
        let rules = self.cluster_role.rules.get_or_insert_default();
        for configuration in &webhook.configurations {
            let of = |verbs| rule(ADMISSION, [configuration.resource], verbs);
            rules.extend([of(&["create"]), named(of(&["get", "patch"]), vec![configuration.name.clone()])]);
        }
        self.roles.extend([
            role(
                &name,
                &webhook.namespace,
                [
                    rule("", ["secrets"], &["create"]),
                    named(rule("", ["secrets"], &["get", "update", "watch"]), vec![webhook.secret()]),
                    rule("coordination.k8s.io", ["leases"], &["get", "list", "create", "update", "delete"]),
                ],
            ),
            role(&name, "default", [rule("events.k8s.io", ["events"], &["create"])]),
        ]);
        self.merged()
    }

    /// Adds what the operator's controllers need in the whole cluster.
    #[must_use]
    pub fn with_rules(mut self, rules: impl IntoIterator<Item = PolicyRule>) -> Self {
        self.cluster_role.rules.get_or_insert_default().extend(rules);
        self
    }

    fn name(&self) -> String {
        self.cluster_role.metadata.name.clone().unwrap_or_default()
    }

    /// One role for each namespace.
    fn merged(mut self) -> Self {
        let mut merged: Vec<Role> = Vec::new();
        for role in self.roles {
            match merged.iter_mut().find(|one| one.metadata.namespace == role.metadata.namespace) {
                Some(same) => same.rules.get_or_insert_default().extend(role.rules.unwrap_or_default()),
                None => merged.push(role),
            }
        }
        self.roles = merged;
        self
    }

    /// The roles and their bindings to a service account, as manifests.
    pub fn manifests(&self, namespace: &str, service_account: &str) -> Vec<Value> {
        let name = self.name();
        let subjects = json!([{"kind": "ServiceAccount", "namespace": namespace, "name": service_account}]);
        let binding = |kind: &str, role: &str, metadata: Value| {
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata, "subjects": subjects,
                "roleRef": {"apiGroup": RBAC, "kind": role, "name": name},
            })
        };
        let of_kind = |kind: &str, object: Value| {
            let mut object = object;
            object["apiVersion"] = json!(format!("{RBAC}/v1"));
            object["kind"] = json!(kind);
            object
        };
        let mut manifests = vec![
            of_kind("ClusterRole", json!(self.cluster_role)),
            binding("ClusterRoleBinding", "ClusterRole", json!({"name": name})),
        ];
        for role in &self.roles {
            manifests.push(of_kind("Role", json!(role)));
            let metadata = json!({"name": name, "namespace": role.metadata.namespace});
            manifests.push(binding("RoleBinding", "Role", metadata));
        }
        manifests
    }
}

fn role(name: &str, namespace: &str, rules: impl IntoIterator<Item = PolicyRule>) -> Role {
    Role {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        rules: Some(rules.into_iter().collect()),
    }
}

fn named(rule: PolicyRule, names: Vec<String>) -> PolicyRule {
    PolicyRule { resource_names: Some(names), ..rule }
}

fn groups(definitions: &[CustomResourceDefinition]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for definition in definitions {
        groups.entry(&definition.spec.group).or_default().insert(&definition.spec.names.plural);
    }
    groups
}

fn rule<'a>(group: &str, resources: impl IntoIterator<Item = &'a str>, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.into_iter().map(str::to_owned).collect()),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_shares_the_roles_of_its_namespaces() {
        let webhook = Webhook::service("default", "pages");
        let permissions = permissions("operator", &[]).with_webhook(&webhook);
        let namespaces: Vec<_> =
            permissions.roles.iter().filter_map(|role| role.metadata.namespace.as_deref()).collect();
        assert_eq!(namespaces, ["kube-system", "default"]);
        let manifests = permissions.manifests("default", "operator");
        let kinds: Vec<_> = manifests.iter().filter_map(|object| object["kind"].as_str()).collect();
        let expected = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Role", "RoleBinding"];
        assert_eq!(kinds, expected);
    }
}
