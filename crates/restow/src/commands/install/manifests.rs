//! Everything that `restow install` creates, in the order in which it can be created.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::CustomResourceExt as _;
use restow_convert::rules::ConversionRules;
use restow_core::agreement::encryption::Pattern;
use restow_core::resource::name::GroupResource;
use serde_json::{Value, json};

use super::choice::GIVEN;
use super::flow;
use super::manifest::{Manifest, comment};
use super::rules::{self, InTree, Listing, NAME, Rule};
use super::workload::{self, Workload};
use crate::commands::controller::Name as Controller;

pub(super) const RBAC: &str = "rbac.authorization.k8s.io";
/// The label of ClusterRoles whose rules the migrator gets.
const AGGREGATE: &str = "restow.dev/aggregate-to-migrator";
/// The second pair of cluster-wide role and binding.
const EXTRA: &str = "restow-extra";

/// What to install.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) namespace: String,
    /// The resources that may be rewritten.
    pub(crate) resources: Vec<GroupResource>,
    /// The controllers that run.
    pub(crate) controllers: Vec<Controller>,
    /// How they use the API of the built-in migrator.
    pub(crate) in_tree: InTree,
    /// How they list objects.
    pub(crate) listing: Listing,
    /// Whether that API has to be defined.
    pub(crate) define_in_tree: bool,
    /// The resources declared as encrypted, if any.
    pub(crate) encrypted: Option<Vec<Pattern>>,
    /// The arguments that an upgrade keeps.
    pub(crate) given: Vec<String>,
    /// The Deployment, unless the controllers run elsewhere.
    pub(crate) workload: Option<Workload>,
}

/// The CRDs of restow.
pub(crate) fn crds() -> Vec<Manifest> {
    let why = [
        "A migration of one resource, with its progress: the API of kube-storage-version-migrator, with optional\n\
         fields added. Objects of an earlier installation are kept and understood.",
        "The versions that objects of a resource may be stored in.",
        "A Conversion moves a custom resource from one version to another. The conversion controller carries it out.",
        "Rules that convert objects between the versions of a CRD, instead of code.",
    ];
    let objects = definitions().map(|crd| serde_json::to_value(crd).unwrap_or_default());
    why.into_iter().zip(objects).map(|(why, object)| Manifest::new(why, object)).collect()
}

/// The CRD of rules alone, for the webhook.
pub(super) fn rules_crd() -> Manifest {
    let why = "Rules that convert objects between the versions of a CRD, instead of code.";
    Manifest::new(why, serde_json::to_value(ConversionRules::crd()).unwrap_or_default())
}

/// The resources of these CRDs.
pub(super) fn own_resources() -> impl Iterator<Item = GroupResource> {
    definitions().map(|crd| GroupResource::new(&crd.spec.group, &crd.spec.names.plural))
}

fn definitions() -> impl Iterator<Item = CustomResourceDefinition> {
    restow_api::crds().into_iter().chain([restow_api::conversion_crd(), ConversionRules::crd()])
}

/// The definition of the built-in migrator's API, for clusters that do not serve it.
fn in_tree_crd() -> Manifest {
    let why =
        "The API of the migrator that is built into newer versions of Kubernetes. restow serves it here.";
    Manifest::new(why, serde_json::to_value(restow_api::in_tree_crd()).unwrap_or_default())
}

pub(crate) fn manifests(setup: &Setup) -> Vec<Manifest> {
    let namespace = setup.namespace.as_str();
    let mut all = vec![own_namespace(namespace)];
    all.extend(crds());
    all.extend(setup.define_in_tree.then(in_tree_crd));
    all.extend(setup.workload.as_ref().map(|_| workload::priority_class()));
    all.extend(flow::manifests(namespace));
    all.push(service_account(namespace));
    all.extend(cluster_roles(setup));
    all.extend(roles(namespace));
    all.extend(setup.workload.iter().flat_map(|workload| workload::manifests(namespace, workload)));
    all
}

/// The manifests as one YAML text.
pub(crate) fn yaml(manifests: &[Manifest]) -> String {
    let head = format!(
        "What restow {} needs in a cluster. To apply it: kubectl apply --server-side -f FILE",
        env!("CARGO_PKG_VERSION")
    );
    let texts: Vec<String> = manifests.iter().map(Manifest::yaml).collect();
    format!("{}---\n{}", comment(&head), texts.join("---\n"))
}

pub(super) fn own_namespace(namespace: &str) -> Manifest {
    let why = "restow's own namespace. Pod security is restricted: its pods cannot harm their node.";
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": namespace,
            "labels": {
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/audit": "restricted",
                "pod-security.kubernetes.io/warn": "restricted",
            },
        },
    });
    Manifest::new(why, object)
}

fn service_account(namespace: &str) -> Manifest {
    let object = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": namespace},
        "automountServiceAccountToken": false,
    });
    Manifest::new("The identity of the controllers. Only their own pods get its token.", object)
}

fn cluster_roles(setup: &Setup) -> Vec<Manifest> {
    let rules = rules::cluster(&setup.resources, &setup.controllers, setup.in_tree, setup.listing);
    let generated = "What the controllers may do in all namespaces, generated for the chosen resources.\n\n\
        Kubernetes has no permission to list only metadata, or to patch without changes: whoever obtains this \
        account's\n\
        token could read and change the resources listed here. restow does neither. To grant less, name the \
        resources:\n\
        restow install secrets widgets.example.com ...";
    let extra = "Empty at first. It aggregates the rules of every ClusterRole with the label\n\
        restow.dev/aggregate-to-migrator: \"true\". With it, the author of a CRD can let restow migrate the\n\
        resource, by granting list and patch on it.";
    let aggregated = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": EXTRA},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {AGGREGATE: "true"}}]},
    });
    let mut chosen = role(generated, "ClusterRole", None, &rules);
    chosen.object["metadata"]["annotations"] = json!({GIVEN: json!(setup.given).to_string()});
    vec![
        chosen,
        Manifest::new(extra, aggregated),
        binding("ClusterRole", NAME, None, &setup.namespace),
        binding("ClusterRole", EXTRA, None, &setup.namespace),
    ]
}

fn roles(own: &str) -> Vec<Manifest> {
    let each = [
        ("What the controllers may do in their own namespace.", own, rules::own()),
        ("What the controllers may read about the control plane.", "kube-system", rules::kube_system()),
        ("What the controllers may read and write in the namespace default.", "default", rules::default()),
    ];
    let pair = |(why, namespace, rules): (&'static str, &str, Vec<Rule>)| {
        [role(why, "Role", Some(namespace), &rules), binding("Role", NAME, Some(namespace), own)]
    };
    each.into_iter().flat_map(pair).collect()
}

pub(super) fn meta(name: &str, namespace: Option<&str>) -> Value {
    match namespace {
        Some(namespace) => json!({"name": name, "namespace": namespace}),
        None => json!({"name": name}),
    }
}

fn role(why: &'static str, kind: &str, namespace: Option<&str>, rules: &[Rule]) -> Manifest {
    let object = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": meta(NAME, namespace), "rules": rules,
    });
    Manifest::new(why, object).noted(rules.iter().map(|rule| rule.why).collect())
}

/// Gives a role to restow's service account.
fn binding(kind: &str, name: &str, namespace: Option<&str>, own: &str) -> Manifest {
    let object = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": format!("{kind}Binding"), "metadata": meta(name, namespace),
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": own}],
    });
    Manifest::new("", object)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::commands::install::manifest::is_ours;

    fn setup(deployed: bool) -> Setup {
        let workload = Workload {
            image: "registry.example/restow:1".to_owned(),
            flags: vec!["--pace=gentle".to_owned()],
        };
        Setup {
            namespace: "ops".to_owned(),
            resources: vec![GroupResource::new("", "secrets")],
            controllers: crate::commands::controller::ALL.to_vec(),
            in_tree: InTree::Unused,
            listing: Listing::Chunked,
            define_in_tree: false,
            encrypted: None,
            given: Vec::new(),
            workload: deployed.then_some(workload),
        }
    }

    #[test]
    fn everything_is_labelled_named_once_and_in_its_place() {
        let all = manifests(&setup(true));
        let paths: BTreeSet<String> = all.iter().map(Manifest::path).collect();
        assert_eq!(paths.len(), all.len());
        assert!(all.iter().all(|manifest| is_ours(&manifest.object)));
        let places: BTreeSet<_> = all.iter().filter_map(Manifest::namespace).collect();
        assert_eq!(places, BTreeSet::from(["default", "kube-system", "ops"]));
        assert_eq!(all.first().map(Manifest::title).as_deref(), Some("namespace/ops"));
        assert_eq!(all.last().map(Manifest::title).as_deref(), Some("deployment/restow in ops"));
    }

    #[test]
    fn without_a_deployment_there_are_no_objects_for_pods() {
        let kinds: BTreeSet<String> =
            manifests(&setup(false)).iter().map(|manifest| manifest.kind().to_owned()).collect();
        for kind in ["Deployment", "NetworkPolicy", "PodDisruptionBudget", "PriorityClass", "Service"] {
            assert!(!kinds.contains(kind), "{kind}");
        }
        assert!(kinds.contains("FlowSchema") && kinds.contains("ClusterRole"));
    }

    #[test]
    fn bindings_are_to_restows_own_roles_and_account_only() {
        for manifest in manifests(&setup(true)).iter().filter(|manifest| manifest.kind().ends_with("Binding"))
        {
            let object = &manifest.object;
            assert!(
                object["roleRef"]["name"].as_str().is_some_and(|name| name.starts_with(NAME)),
                "{object}"
            );
            assert_eq!(
                object["subjects"],
                json!([{"kind": "ServiceAccount", "name": "restow", "namespace": "ops"}])
            );
        }
    }

    #[test]
    fn the_yaml_parses_to_the_objects() {
        let all = manifests(&setup(true));
        let text = yaml(&all);
        let documents: Vec<Value> =
            text.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect();
        let objects: Vec<Value> = all.into_iter().map(|manifest| manifest.object).collect();
        assert_eq!(documents, objects);
        assert!(text.contains("# One replica leads.") && !text.contains("# \n"), "{text}");
    }

    #[test]
    fn manifests_are_as_reviewed() {
        let adopted = Setup {
            in_tree: InTree::Adopted,
            define_in_tree: true,
            listing: Listing::Streamed,
            resources: vec![GroupResource::parse("secrets"), GroupResource::parse("widgets.example.com")],
            ..setup(true)
        };
        let minimal =
            Setup { controllers: vec![Controller::Migrator], in_tree: InTree::Backend, ..setup(false) };
        for (name, setup) in
            [("install", &setup(true)), ("adopt", &adopted), ("without-deployment", &minimal)]
        {
            // The definitions are in a file of their own.
            let mut all = manifests(setup);
            all.retain(|manifest| manifest.kind() != "CustomResourceDefinition");
            let text = yaml(&all).replace(env!("CARGO_PKG_VERSION"), "VERSION");
            crate::snapshots::check(&format!("install/{name}"), &text);
        }
        let text = yaml(&crds()).replace(env!("CARGO_PKG_VERSION"), "VERSION");
        crate::snapshots::check("install/crds", &text);
    }
}
