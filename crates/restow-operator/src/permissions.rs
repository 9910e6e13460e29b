//! The permissions that registering and migrating need, for just the CRDs of an operator.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

const CRDS: &str = "customresourcedefinitions";
const EXTENSIONS: &str = "apiextensions.k8s.io";

/// The roles of an operator. Bind them to its service account.
#[derive(Clone, Debug, PartialEq)]
pub struct Permissions {
    /// What is needed in the whole cluster.
    pub cluster_role: ClusterRole,
    /// What is needed in single namespaces: where API servers make themselves known.
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
        PolicyRule { resource_names: Some(crds.clone()), ..rule(EXTENSIONS, [CRDS], &["update"]) },
        PolicyRule {
            resource_names: Some(crds),
            ..rule(EXTENSIONS, ["customresourcedefinitions/status"], &["patch"])
        },
        rule("apiregistration.k8s.io", ["apiservices"], &["list"]),
        rule("internal.apiserver.k8s.io", ["storageversions"], &["get"]),
        PolicyRule {
            non_resource_urls: Some(
                ["/api", "/api/*", "/apis", "/apis/*", "/readyz"].map(str::to_owned).to_vec(),
            ),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        },
    ]);
    let metadata = |namespace: Option<&str>| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ObjectMeta::default()
    };
    let role = |namespace: &str, group: &str, resource: &str| Role {
        metadata: metadata(Some(namespace)),
        rules: Some(vec![rule(group, [resource], &["list"])]),
    };
    Permissions {
        cluster_role: ClusterRole { metadata: metadata(None), rules: Some(rules), aggregation_rule: None },
        roles: vec![
            role("kube-system", "coordination.k8s.io", "leases"),
            role("default", "discovery.k8s.io", "endpointslices"),
        ],
    }
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
