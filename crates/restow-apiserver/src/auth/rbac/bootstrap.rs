//! The default roles and bindings of Kubernetes, as far as this server has the resources.

use serde_json::{Map, Value, json};

use super::policy::Kind;
use super::rule::Rule;
use crate::auth::user::{AUTHENTICATED, MASTERS, UNAUTHENTICATED};

/// The group of users who may read metrics.
const MONITORING: &str = "system:monitoring";
const READ: &str = "get list watch";
const WRITE: &str = "create update patch delete deletecollection";
const READ_WRITE: &str = "get list watch create update patch delete deletecollection";

/// Verbs, groups (`-` is the core group) and resources.
type OnResources = (&'static str, &'static str, &'static str);

const VIEW: [OnResources; 4] = [
    (READ, "-", "pods pods/status pods/log serviceaccounts services services/status endpoints configmaps"),
    (READ, "-", "namespaces namespaces/status"),
    (READ, "- events.k8s.io", "events"),
    (READ, "apps", "deployments deployments/status deployments/scale replicasets replicasets/status"),
];

const EDIT: [OnResources; 7] = [
    (READ, "-", "secrets"),
    ("impersonate", "-", "serviceaccounts"),
    (WRITE, "-", "pods serviceaccounts services configmaps secrets"),
    ("create", "-", "pods/eviction serviceaccounts/token"),
    (WRITE, "- events.k8s.io", "events"),
    (WRITE, "apps", "deployments deployments/scale replicasets"),
    (READ_WRITE, "coordination.k8s.io", "leases"),
];

const ADMIN: [OnResources; 2] = [
    ("create", "authorization.k8s.io", "localsubjectaccessreviews"),
    (READ_WRITE, super::roles::GROUP, "roles rolebindings"),
];

const BASIC_USER: [OnResources; 2] = [
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
];

const AUTH_DELEGATOR: [OnResources; 2] = [
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
];

const PUBLIC: &str = "/livez /readyz /healthz /version /version/";
const DISCOVERY: &str =
    "/livez /readyz /healthz /version /version/ /openapi /openapi/* /api /api/* /apis /apis/*";
const METRICS: &str = "/metrics /metrics/slis /livez /readyz /healthz /livez/* /readyz/* /healthz/*";

/// The default ClusterRoleBindings: roles and their groups.
const BINDINGS: [(&str, &[&str]); 5] = [
    ("cluster-admin", &[MASTERS]),
    ("system:monitoring", &[MONITORING]),
    ("system:discovery", &[AUTHENTICATED]),
    ("system:basic-user", &[AUTHENTICATED]),
    ("system:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
];

/// An object that is created if it is missing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BootstrapObject {
    /// The kind: all of them are cluster-scoped.
    pub kind: Kind,
    pub name: String,
    pub object: Value,
}

/// All default roles and bindings.
pub(crate) fn bootstrap() -> Vec<BootstrapObject> {
    let mut objects = vec![
        role("cluster-admin", &[], [on_resources(("*", "*", "*")), on_paths("*", "*")]),
        role("system:discovery", &[], [on_paths("get", DISCOVERY)]),
        role("system:monitoring", &[], [on_paths("get", METRICS)]),
        role("system:public-info-viewer", &[], [on_paths("get", PUBLIC)]),
        role("system:basic-user", &[], BASIC_USER.map(on_resources)),
        role("system:auth-delegator", &[], AUTH_DELEGATOR.map(on_resources)),
        role("system:aggregate-to-admin", &["admin"], ADMIN.map(on_resources)),
        role("system:aggregate-to-edit", &["edit"], EDIT.map(on_resources)),
        role("system:aggregate-to-view", &["view"], VIEW.map(on_resources)),
    ];
    let (view, edit, admin) =
        (VIEW.to_vec(), [&EDIT[..], &VIEW].concat(), [&ADMIN[..], &EDIT, &VIEW].concat());
    for (name, part_of, rules) in
        [("admin", &[][..], admin), ("edit", &["admin"][..], edit), ("view", &["edit"][..], view)]
    {
        let mut gathering = role(name, part_of, rules.into_iter().map(on_resources));
        let label = Map::from_iter([(label(name), json!("true"))]);
        gathering.object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": label}]});
        objects.push(gathering);
    }
    objects.extend(BINDINGS.map(|(name, groups)| binding(name, groups)));
    objects
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(|word| if word == "-" { String::new() } else { word.to_owned() }).collect()
}

fn on_resources((verbs, groups, resources): OnResources) -> Rule {
    Rule { verbs: words(verbs), api_groups: words(groups), resources: words(resources), ..Rule::default() }
}

fn on_paths(verbs: &str, paths: &str) -> Rule {
    Rule { verbs: words(verbs), non_resource_urls: words(paths), ..Rule::default() }
}

/// The label of the roles that a role aggregates.
fn label(gatherer: &str) -> String {
    format!("{}/aggregate-to-{gatherer}", super::roles::GROUP)
}

fn metadata(name: &str, part_of: &[&str]) -> Value {
    let mut labels = Map::from_iter([("kubernetes.io/bootstrapping".to_owned(), json!("rbac-defaults"))]);
    labels.extend(part_of.iter().map(|gatherer| (label(gatherer), json!("true"))));
    json!({
        "name": name,
        "labels": labels,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn role(name: &str, part_of: &[&str], rules: impl IntoIterator<Item = Rule>) -> BootstrapObject {
    let rules: Vec<Rule> = rules.into_iter().collect();
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": metadata(name, part_of), "rules": rules,
    });
    BootstrapObject { kind: Kind::ClusterRole, name: name.to_owned(), object }
}

fn binding(name: &str, groups: &[&str]) -> BootstrapObject {
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| json!({"apiGroup": super::roles::GROUP, "kind": "Group", "name": group}))
        .collect();
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": metadata(name, &[]), "subjects": subjects,
        "roleRef": {"apiGroup": super::roles::GROUP, "kind": "ClusterRole", "name": name},
    });
    BootstrapObject { kind: Kind::ClusterRoleBinding, name: name.to_owned(), object }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::attributes::{Attributes, ResourceAttributes};
    use crate::auth::rbac::Policy;
    use crate::auth::user::User;

    fn policy() -> Policy {
        let mut policy = Policy::default();
        for BootstrapObject { kind, name, object } in bootstrap() {
            policy.set(kind, "", &name, Some(object.to_string().as_bytes()));
        }
        let subjects = |name: &str| json!([{"kind": "User", "name": name}]);
        for name in ["view", "edit", "admin"] {
            let binding =
                json!({"subjects": subjects(name), "roleRef": {"kind": "ClusterRole", "name": name}});
            policy.set(Kind::RoleBinding, "a", name, Some(binding.to_string().as_bytes()));
        }
        policy
    }

    #[test]
    fn the_bootstrap_roles_grant_what_kubernetes_grants() {
        let policy = policy();
        let named = |name: &str| User::known(name, [""; 0]);
        let path = Attributes::of_path;
        fn on<'a>(verb: &'a str, group: &'a str, resource: &'a str, namespace: &'a str) -> Attributes<'a> {
            let of = ResourceAttributes { group, resource, namespace, ..ResourceAttributes::default() };
            Attributes::of_resource(verb, of)
        }
        for (user, attributes, expected) in [
            (User::anonymous(), path("get", "/healthz"), true),
            (User::anonymous(), path("get", "/livez"), true),
            (User::anonymous(), path("get", "/readyz"), true),
            (User::anonymous(), path("get", "/version"), true),
            (User::anonymous(), path("get", "/api"), false),
            (User::anonymous(), path("get", "/metrics"), false),
            (User::anonymous(), path("post", "/version"), false),
            (User::anonymous(), on("list", "", "pods", ""), false),
            (User::anonymous(), on("create", "authorization.k8s.io", "selfsubjectaccessreviews", ""), false),
            (named("x"), path("get", "/apis/apps/v1"), true),
            (named("x"), path("get", "/openapi/v3"), true),
            (named("x"), path("get", "/metrics"), false),
            (named("x"), on("create", "authorization.k8s.io", "selfsubjectaccessreviews", ""), true),
            (named("x"), on("create", "authorization.k8s.io", "subjectaccessreviews", ""), false),
            (named("x"), on("get", "", "namespaces", "a"), false),
            (User::known("m", [MONITORING]), path("get", "/metrics"), true),
            (User::admin(), on("delete", "any", "thing", ""), true),
            (named("view"), on("get", "", "namespaces", "a"), true),
            (named("view"), on("get", "", "configmaps", "a"), true),
            (named("view"), on("get", "", "configmaps", "b"), false),
            (named("view"), on("get", "", "secrets", "a"), false),
            (named("view"), on("create", "", "configmaps", "a"), false),
            (named("edit"), on("get", "", "configmaps", "a"), true),
            (named("edit"), on("create", "", "secrets", "a"), true),
            (named("edit"), on("create", super::super::roles::GROUP, "roles", "a"), false),
            (named("admin"), on("get", "", "configmaps", "a"), true),
            (named("admin"), on("create", "", "secrets", "a"), true),
            (named("admin"), on("create", super::super::roles::GROUP, "roles", "a"), true),
            (named("admin"), on("create", super::super::roles::GROUP, "clusterroles", ""), false),
        ] {
            assert_eq!(policy.allows(&user, &attributes), expected, "{} {attributes:?}", user.name);
        }
    }

    #[test]
    fn aggregated_roles_list_the_rules_they_aggregate() {
        let policy = policy();
        for BootstrapObject { name, object, .. } in bootstrap() {
            if object.get("aggregationRule").is_some() {
                let shown: Vec<Rule> = serde_json::from_value(object["rules"].clone()).unwrap();
                let rules = policy.rules_for(&User::known(&name, [""; 0]), "a");
                assert!(
                    rules.iter().all(|rule| {
                        shown.contains(rule) || rule.verbs == ["get"] || rule.verbs == ["create"]
                    }),
                    "{name}"
                );
                assert!(shown.iter().all(|rule| rules.contains(&rule)), "{name}");
            }
        }
    }
}
