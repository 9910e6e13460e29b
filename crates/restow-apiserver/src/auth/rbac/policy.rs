//! All roles and bindings, and what they grant to a user.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::roles::{Binding, Role, RoleRef, Subject};
use super::rule::Rule;
use crate::auth::attributes::Attributes;
use crate::auth::user::User;
use crate::http::status::StatusError;

/// The four kinds of RBAC objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Role,
    ClusterRole,
    /// Role bindings.
    RoleBinding,
    /// Cluster role bindings.
    ClusterRoleBinding,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 4] =
        [Self::Role, Self::ClusterRole, Self::RoleBinding, Self::ClusterRoleBinding];

    /// The resource's plural name.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }

    /// The kind of a resource of the RBAC group.
    pub(crate) fn of(resource: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.resource() == resource)
    }
}

/// All roles and bindings. It is cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    roles: BTreeMap<(String, String), Arc<Role>>,
    cluster_roles: BTreeMap<String, Arc<Role>>,
    bindings: BTreeMap<String, BTreeMap<String, Arc<Binding>>>,
    cluster_bindings: BTreeMap<String, Arc<Binding>>,
    /// The rules that ClusterRoles aggregate from others.
    gathered: BTreeMap<String, Arc<[Rule]>>,
}

/// Why a request is allowed. Its text is that of kube-apiserver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant<'a>(Option<Source<'a>>);

/// A binding that applies to a user.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    namespace: &'a str,
    name: &'a str,
    binding: &'a Binding,
    subject: &'a Subject,
}

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Source { namespace, name, binding, subject }) = self.0 else { return Ok(()) };
        let (kind, name) = match namespace {
            "" => ("ClusterRoleBinding", name.to_owned()),
            namespace => ("RoleBinding", format!("{name}/{namespace}")),
        };
        let role = &binding.role_ref;
        let subject = subject.describe(namespace);
        write!(f, "RBAC: allowed by {kind} {name:?} of {} {:?} to {subject}", role.kind, role.name)
    }
}

impl Policy {
    /// Adds a role or binding, or removes it if `object` is none. An object that cannot be parsed grants nothing.
    pub(crate) fn set(&mut self, kind: Kind, namespace: &str, name: &str, object: Option<&[u8]>) {
        match kind {
            Kind::Role => {
                put(&mut self.roles, (namespace.to_owned(), name.to_owned()), object);
            }
            Kind::ClusterRole => put(&mut self.cluster_roles, name.to_owned(), object),
            Kind::ClusterRoleBinding => put(&mut self.cluster_bindings, name.to_owned(), object),
            Kind::RoleBinding => {
                let of_namespace = self.bindings.entry(namespace.to_owned()).or_default();
                put(of_namespace, name.to_owned(), object);
                if of_namespace.is_empty() {
                    self.bindings.remove(namespace);
                }
            }
        }
        if kind == Kind::ClusterRole {
            self.gather();
        }
    }

    /// Resolves aggregationRules, including those of aggregated roles.
    fn gather(&mut self) {
        let gatherers = self.cluster_roles.iter().filter(|(_, role)| role.aggregation_rule.is_some());
        let gathered = gatherers.map(|(name, _)| {
            let mut seen = BTreeSet::new();
            let mut rules = Vec::new();
            self.gather_into(name, &mut seen, &mut rules);
            (name.clone(), Arc::from(rules))
        });
        self.gathered = gathered.collect();
    }

    fn gather_into<'a>(&'a self, name: &'a str, seen: &mut BTreeSet<&'a str>, rules: &mut Vec<Rule>) {
        let (mut waiting, mut known) = (vec![name], HashSet::new());
        while let Some(name) = waiting.pop() {
            let Some(aggregation) =
                self.cluster_roles.get(name).and_then(|role| role.aggregation_rule.as_ref())
            else {
                continue;
            };
            for (other, role) in &self.cluster_roles {
                let labels = role.metadata.labels.as_ref();
                let picked = labels.is_some_and(|labels| {
                    aggregation.cluster_role_selectors.iter().any(|selector| selector.picks(labels))
                });
                if picked && seen.insert(other) {
                    rules.extend(role.rules.iter().filter(|rule| known.insert(*rule)).cloned());
                    waiting.push(other);
                }
            }
        }
    }

    /// What allows a request; otherwise the reason, which may be empty.
    pub(crate) fn decide(&self, user: &User, attributes: &Attributes<'_>) -> Result<Grant<'_>, String> {
        if user.is_master() {
            return Ok(Grant(None));
        }
        let mut missing = Vec::new();
        for source in self.sources(user, attributes.namespace()) {
            match self.rules_of(&source.binding.role_ref, source.namespace) {
                Ok(mut rules) => {
                    if rules.any(|rule| rule.allows(attributes)) {
                        return Ok(Grant(Some(source)));
                    }
                }
                Err(error) if missing.contains(&error) => {}
                Err(error) => missing.push(error),
            }
        }
        Err(described(&missing))
    }

    /// Refuses what the user may not do.
    pub(crate) fn permit(&self, user: &User, attributes: &Attributes<'_>) -> Result<(), StatusError> {
        match self.decide(user, attributes) {
            Ok(_) => Ok(()),
            Err(why) => Err(attributes.forbidden(user, &why)),
        }
    }

    /// Whether the user may do this.
    pub(crate) fn allows(&self, user: &User, attributes: &Attributes<'_>) -> bool {
        self.decide(user, attributes).is_ok()
    }

    /// All rules of a user in a namespace, or in the whole cluster if it is empty.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> Vec<&Rule> {
        self.sources(user, namespace)
            .filter_map(|source| self.rules_of(&source.binding.role_ref, source.namespace).ok())
            .flatten()
            .collect()
    }

    fn sources<'a>(&'a self, user: &User, namespace: &str) -> impl Iterator<Item = Source<'a>> {
        let local = self.bindings.get_key_value(namespace).filter(|_| !namespace.is_empty());
        let local = local.into_iter().flat_map(|(namespace, bindings)| {
            bindings.iter().map(move |(name, binding)| (namespace.as_str(), name, binding))
        });
        let cluster = self.cluster_bindings.iter().map(|(name, binding)| ("", name, binding));
        cluster.chain(local).filter_map(move |(namespace, name, binding)| {
            let subject = binding.subjects.iter().find(|subject| subject.is(user, namespace))?;
            Some(Source { namespace, name, binding, subject })
        })
    }

    /// The rules of the role that a binding names; an error if the role does not exist.
    pub(super) fn rules_of(
        &self,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<impl Iterator<Item = &Rule>, String> {
        let found = match role.kind.as_str() {
            "Role" => self.roles.get(&(namespace.to_owned(), role.name.clone())),
            "ClusterRole" => self.cluster_roles.get(&role.name),
            kind => return Err(format!("unsupported role reference kind: {kind:?}")),
        };
        let resource = if role.kind == "Role" { "role" } else { "clusterrole" };
        let found =
            found.ok_or_else(|| format!("{resource}.{} {:?} not found", super::roles::GROUP, role.name))?;
        let gathered = self.gathered.get(&role.name).filter(|_| role.kind == "ClusterRole");
        Ok(found.rules.iter().chain(gathered.into_iter().flat_map(|rules| rules.iter())))
    }
}

fn put<K: Ord, V: Default + DeserializeOwned>(map: &mut BTreeMap<K, Arc<V>>, key: K, object: Option<&[u8]>) {
    match object {
        Some(object) => {
            map.insert(key, Arc::new(serde_json::from_slice(object).unwrap_or_default()));
        }
        None => {
            map.remove(&key);
        }
    }
}

/// Errors of bindings, as kube-apiserver adds them to a denial.
fn described(missing: &[String]) -> String {
    match missing {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::roles::Selector;
    use super::*;
    use crate::auth::attributes::ResourceAttributes;

    fn set(policy: &mut Policy, kind: Kind, namespace: &str, name: &str, object: &Value) {
        policy.set(kind, namespace, name, Some(object.to_string().as_bytes()));
    }

    fn role_ref(kind: &str, name: &str) -> Value {
        json!({"apiGroup": super::super::roles::GROUP, "kind": kind, "name": name})
    }

    fn rules(verb: &str, resource: &str) -> Value {
        json!([{"verbs": [verb], "apiGroups": [""], "resources": [resource]}])
    }

    /// Bindings of all kinds, for the tables below.
    fn policy() -> Policy {
        let mut policy = Policy::default();
        let all = &mut policy;
        set(all, Kind::ClusterRole, "", "reader", &json!({"rules": rules("get", "pods")}));
        set(
            all,
            Kind::ClusterRole,
            "",
            "paths",
            &json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}),
        );
        set(all, Kind::Role, "a", "reader", &json!({"rules": rules("get", "secrets")}));
        set(all, Kind::Role, "b", "reader", &json!({"rules": rules("get", "configmaps")}));
        for (name, role, subject) in [
            ("users", "reader", json!({"kind": "User", "name": "cluster-user"})),
            ("groups", "reader", json!({"kind": "Group", "name": "cluster-group"})),
            ("accounts", "reader", json!({"kind": "ServiceAccount", "namespace": "a", "name": "sa"})),
            ("homeless", "reader", json!({"kind": "ServiceAccount", "name": "homeless"})),
            ("paths", "paths", json!({"kind": "User", "name": "walker"})),
            ("nothing", "missing", json!({"kind": "User", "name": "lost"})),
            ("odd", "reader", json!({"kind": "Robot", "name": "robot"})),
        ] {
            let binding = json!({"subjects": [subject], "roleRef": role_ref("ClusterRole", role)});
            set(all, Kind::ClusterRoleBinding, "", name, &binding);
        }
        let named =
            |name: &str| json!([{"kind": "User", "name": name}, {"kind": "ServiceAccount", "name": name}]);
        for (namespace, name, kind, role) in [
            ("a", "local", "Role", "reader"),
            ("a", "wide", "ClusterRole", "reader"),
            ("a", "lost", "Role", "missing"),
            ("a", "odd", "Cluster", "reader"),
            ("a", "walker2", "ClusterRole", "paths"),
            ("b", "local", "Role", "reader"),
        ] {
            let binding = json!({"subjects": named(name), "roleRef": role_ref(kind, role)});
            set(all, Kind::RoleBinding, namespace, name, &binding);
        }
        policy
    }

    fn get<'a>(resource: &'a str, namespace: &'a str) -> Attributes<'a> {
        Attributes::of_resource(
            "get",
            ResourceAttributes { resource, namespace, ..ResourceAttributes::default() },
        )
    }

    #[test]
    fn bindings_grant_the_rules_of_their_role() {
        let policy = policy();
        for (user, groups, resource, namespace, expected) in [
            ("cluster-user", "", "pods", "", true),
            ("cluster-user", "", "pods", "a", true),
            ("cluster-user", "", "secrets", "a", false),
            ("Cluster-user", "", "pods", "", false),
            ("x", "cluster-group", "pods", "", true),
            ("cluster-group", "", "pods", "", false),
            ("x", "cluster-user", "pods", "", false),
            ("system:serviceaccount:a:sa", "", "pods", "b", true),
            ("system:serviceaccount:b:sa", "", "pods", "b", false),
            ("system:serviceaccount::homeless", "", "pods", "", false),
            ("system:serviceaccount:a:homeless", "", "pods", "a", false),
            ("robot", "robot", "pods", "", false),
            ("local", "", "secrets", "a", true),
            ("local", "", "secrets", "b", false),
            ("local", "", "secrets", "", false),
            ("local", "", "configmaps", "b", true),
            ("local", "", "configmaps", "a", false),
            ("local", "", "pods", "a", false),
            ("system:serviceaccount:a:local", "", "secrets", "a", true),
            ("system:serviceaccount:a:local", "", "configmaps", "b", false),
            ("wide", "", "pods", "a", true),
            ("wide", "", "pods", "b", false),
            ("wide", "", "pods", "", false),
            ("nobody", "", "pods", "a", false),
            ("nobody", "system:masters", "anything", "", true),
            ("system:masters", "", "anything", "", false),
        ] {
            let user = User::known(user, groups.split_whitespace());
            let attributes = get(resource, namespace);
            assert_eq!(policy.allows(&user, &attributes), expected, "{user:?} {attributes:?}");
        }
    }

    #[test]
    fn only_cluster_role_bindings_grant_paths() {
        let policy = policy();
        let path = Attributes::of_path("get", "/x");
        assert!(policy.allows(&User::known("walker", [""; 0]), &path));
        assert!(!policy.allows(&User::known("walker2", [""; 0]), &path));
    }

    #[test]
    fn a_decision_names_the_binding_it_rests_on() {
        let policy = policy();
        let described = |user: &str, resource, namespace| {
            let user = User::known(user, [""; 0]);
            match policy.decide(&user, &get(resource, namespace)) {
                Ok(grant) => grant.to_string(),
                Err(why) => why,
            }
        };
        for (user, resource, namespace, expected) in [
            (
                "cluster-user",
                "pods",
                "",
                r#"RBAC: allowed by ClusterRoleBinding "users" of ClusterRole "reader" to User "cluster-user""#,
            ),
            (
                "local",
                "secrets",
                "a",
                r#"RBAC: allowed by RoleBinding "local/a" of Role "reader" to User "local""#,
            ),
            (
                "system:serviceaccount:a:local",
                "secrets",
                "a",
                r#"RBAC: allowed by RoleBinding "local/a" of Role "reader" to ServiceAccount "local/a""#,
            ),
            ("lost", "pods", "", r#"RBAC: clusterrole.rbac.authorization.k8s.io "missing" not found"#),
            (
                "lost",
                "pods",
                "a",
                r#"RBAC: [clusterrole.rbac.authorization.k8s.io "missing" not found, role.rbac.authorization.k8s.io "missing" not found]"#,
            ),
            ("odd", "pods", "a", r#"RBAC: unsupported role reference kind: "Cluster""#),
            ("nobody", "pods", "a", ""),
        ] {
            assert_eq!(described(user, resource, namespace), expected, "{user}");
        }
    }

    #[test]
    fn a_deleted_binding_grants_nothing() {
        let mut policy = policy();
        let user = User::known("local", [""; 0]);
        assert!(policy.allows(&user, &get("secrets", "a")));
        policy.set(Kind::RoleBinding, "a", "local", None);
        assert!(!policy.allows(&user, &get("secrets", "a")));
        assert!(policy.allows(&user, &get("configmaps", "b")));
        policy.set(Kind::Role, "b", "reader", None);
        assert!(!policy.allows(&user, &get("configmaps", "b")));
        let reader = User::known("cluster-user", [""; 0]);
        policy.set(Kind::ClusterRole, "", "reader", Some(b"{\"rules\": 7}"));
        assert!(!policy.allows(&reader, &get("pods", "")), "what cannot be read allows nothing");
        policy.set(Kind::ClusterRoleBinding, "", "users", None);
        assert_eq!(policy.decide(&reader, &get("pods", "")).unwrap_err(), "");
    }

    #[test]
    fn aggregated_roles_include_roles_that_are_aggregated_themselves() {
        let mut policy = Policy::default();
        let gathers = |label: &str, own: &str| {
            json!({
                "metadata": {"labels": {own: "yes"}},
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "yes"}}]},
            })
        };
        let labelled = |label: &str, resource: &str| json!({"metadata": {"labels": {label: "yes"}}, "rules": rules("get", resource)});
        let all = &mut policy;
        set(all, Kind::ClusterRole, "", "admin", &gathers("to-admin", "to-nobody"));
        set(all, Kind::ClusterRole, "", "edit", &gathers("to-edit", "to-admin"));
        set(all, Kind::ClusterRole, "", "circle", &gathers("to-circle", "to-circle"));
        set(all, Kind::ClusterRole, "", "pods", &labelled("to-edit", "pods"));
        set(all, Kind::ClusterRole, "", "nodes", &labelled("to-admin", "nodes"));
        set(all, Kind::ClusterRole, "", "secrets", &labelled("to-circle", "secrets"));
        for role in ["admin", "edit", "circle"] {
            let subjects = json!([{"kind": "User", "name": role}]);
            let binding = json!({"subjects": subjects, "roleRef": role_ref("ClusterRole", role)});
            set(all, Kind::ClusterRoleBinding, "", role, &binding);
        }
        let allowed = |policy: &Policy, user: &str| {
            let user = User::known(user, [""; 0]);
            let resources = ["pods", "nodes", "secrets"].into_iter();
            resources
                .filter(|resource| policy.allows(&user, &get(resource, "")))
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (user, expected) in [("admin", "pods nodes"), ("edit", "pods"), ("circle", "secrets")] {
            assert_eq!(allowed(&policy, user), expected, "{user}");
        }
        policy.set(Kind::ClusterRole, "", "pods", None);
        assert_eq!(allowed(&policy, "admin"), "nodes");
    }

    #[test]
    fn aggregation_selectors_match_labels() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1", "b": "2"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "3"]}]}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}), false),
            (json!({"matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["1"]}]}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["0"]}]}), false),
        ] {
            let read: Selector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(read.picks(&labels), expected, "{selector}");
        }
    }
}
