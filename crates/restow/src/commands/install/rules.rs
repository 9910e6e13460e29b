//! The permissions of the controllers: the fewest rules for the chosen resources.

use std::collections::{BTreeMap, BTreeSet};

use restow_core::protocol::storage_version;
use restow_core::resource::name::GroupResource;
use serde::Serialize;

use crate::commands::controller::Name as Controller;

/// One rule of a role, and what it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule {
    #[serde(skip)]
    pub(crate) why: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    non_resource_urls: Vec<&'static str>,
    verbs: Vec<&'static str>,
}

/// The API group of migrations; all of it is granted.
const MIGRATION: &str = "migration.k8s.io";
/// The name of the Lease, and of most objects that restow creates.
pub(crate) const NAME: &str = "restow";
/// The name of everything that the webhook needs.
pub(crate) const WEBHOOK: &str = "restow-webhook";
/// The name of the Secret of the webhook's certificates, and of its Lease.
pub(crate) const CERTIFICATES: &str = "restow-webhook-certificates";

fn rule(why: &'static str, group: &str, resources: &[&str], verbs: &[&'static str]) -> Rule {
    Rule {
        why,
        api_groups: vec![group.to_owned()],
        resources: resources.iter().map(|resource| (*resource).to_owned()).collect(),
        verbs: verbs.to_vec(),
        ..Rule::default()
    }
}

impl Rule {
    /// Limits the rule to objects of these names.
    fn named(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.resource_names = names.into_iter().collect();
        self
    }
}

/// What the webhook may do in all namespaces. A list or watch of one object counts as one of its name.
pub(super) fn webhook(crds: &[GroupResource]) -> Vec<Rule> {
    let (crd, extensions) = (["customresourcedefinitions"], "apiextensions.k8s.io");
    let mut rules = vec![
        rule("The rules to convert by.", "restow.dev", &["conversionrules"], &["get", "list", "watch"]),
        rule("Which replica serves them.", "restow.dev", &["conversionrules/status"], &["patch"]),
        rule(
            "The schemas of these CRDs, and their spec.conversion.",
            extensions,
            &crd,
            &["get", "list", "watch", "patch"],
        )
        .named(crds.iter().map(ToString::to_string)),
    ];
    rules.extend(crds.iter().map(|crd| {
        rule("Would their objects survive the conversion?", &crd.group, &[&crd.resource], &["list"])
    }));
    rules
}

/// What the webhook may do in its own namespace.
pub(super) fn webhook_own() -> Vec<Rule> {
    let (core, coordination) = ("", "coordination.k8s.io");
    let create = "Its Secret and its Lease. (RBAC cannot restrict create by name.)";
    vec![
        rule(create, core, &["secrets"], &["create"]),
        rule(create, coordination, &["leases"], &["create"]),
        rule(
            "The Secret of its certificates; no other can be read.",
            core,
            &["secrets"],
            &["get", "watch", "update"],
        )
        .named([CERTIFICATES.to_owned()]),
        rule("One replica registers: its Lease.", coordination, &["leases"], &["get", "update"])
            .named([CERTIFICATES.to_owned()]),
    ]
}

/// What the webhook may do in the namespace default.
pub(super) fn webhook_events() -> Vec<Rule> {
    vec![rule("Events about CRDs belong there.", "events.k8s.io", &["events"], &["create"])]
}

/// How the controllers use `storagemigration.k8s.io`, the API of the built-in migrator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InTree {
    /// They do not use it.
    #[default]
    Unused,
    /// They delegate to its controller.
    Backend,
    /// They serve its objects.
    Adopted,
}

/// The rules on the API of the built-in migrator.
fn in_tree(usage: InTree) -> Vec<Rule> {
    let (group, objects) = ("storagemigration.k8s.io", ["storageversionmigrations"]);
    match usage {
        InTree::Unused => Vec::new(),
        InTree::Backend => {
            let why = "The built-in controller does the first pass; restow can take it back.";
            vec![rule(why, group, &objects, &["get", "list", "create", "delete"])]
        }
        InTree::Adopted => vec![
            rule("restow serves its migrations.", group, &objects, &["get", "list", "watch"]),
            rule("Their progress.", group, &["storageversionmigrations/status"], &["update"]),
        ],
    }
}

/// The rules of the cluster-wide role.
pub(crate) fn cluster(
    chosen: &[GroupResource],
    controllers: &[Controller],
    usage: InTree,
    listing: Listing,
) -> Vec<Rule> {
    let mut rules = rewrite_rules(chosen, listing);
    rules.extend(discovery_rules(controllers));
    if controllers.contains(&Controller::Conversion) {
        rules.extend(conversion_rules());
    }
    if controllers.contains(&Controller::Pruner) || controllers.contains(&Controller::Conversion) {
        let why = "The pruner reduces status.storedVersions after a verified migration.";
        let status = ["customresourcedefinitions/status"];
        rules.push(rule(why, "apiextensions.k8s.io", &status, &["patch"]));
    }
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let objects = ["storagestates", "storageversionmigrations"];
    let status = ["storagestates/status", "storageversionmigrations/status"];
    rules.push(rule("Migrations and storage states are restow's own.", MIGRATION, &objects, &verbs));
    rules.push(rule("Their progress.", MIGRATION, &status, &["get", "update", "patch"]));
    rules.extend(in_tree(usage));
    rules
}

/// What only the conversion controller needs: changing the spec of CRDs is a right of its own.
fn conversion_rules() -> Vec<Rule> {
    let crds = "The conversion controller sets storage versions, and stops serving old ones.";
    vec![
        rule(crds, "apiextensions.k8s.io", &["customresourcedefinitions"], &["patch"]),
        rule("Conversions to carry out.", "restow.dev", &["conversions"], &["get", "list", "watch"]),
        rule("Their progress.", "restow.dev", &["conversions/status"], &["get", "update", "patch"]),
        rule("Rules that convert in place.", "restow.dev", &["conversionrules"], &["list"]),
    ]
}

/// How objects are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listing {
    #[default]
    Chunked,
    /// As a stream, at least for long lists; this needs permission to watch.
    Streamed,
}

/// List and patch on the chosen resources, watch if lists are streamed, and nothing else.
fn rewrite_rules(chosen: &[GroupResource], listing: Listing) -> Vec<Rule> {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in chosen.iter().filter(|name| name.group != MIGRATION) {
        groups.entry(&name.group).or_default().insert(&name.resource);
    }
    let verbs = match listing {
        Listing::Chunked => &["list", "patch"][..],
        Listing::Streamed => &["list", "watch", "patch"],
    };
    let each = |(group, resources): (&str, BTreeSet<&str>)| {
        let why = "Resources to rewrite: listed as metadata, and patched with only uid and resourceVersion.";
        rule(why, group, &resources.into_iter().collect::<Vec<_>>(), verbs)
    };
    groups.into_iter().map(each).collect()
}

/// Permissions to find out which resources exist and in which version they are stored.
fn discovery_rules(controllers: &[Controller]) -> Vec<Rule> {
    let watch = ["get", "list", "watch"];
    let mut urls = vec!["/api", "/api/*", "/apis", "/apis/*", "/readyz"];
    if controllers.contains(&Controller::Encryption) {
        urls.push("/metrics");
    }
    vec![
        rule("CRDs show storage versions.", "apiextensions.k8s.io", &["customresourcedefinitions"], &watch),
        rule("Which APIs are aggregated.", "apiregistration.k8s.io", &["apiservices"], &["list"]),
        rule(
            "The storage versions that each API server has registered, where that API is served.",
            "internal.apiserver.k8s.io",
            &["storageversions"],
            &watch,
        ),
        Rule {
            resource_names: vec!["kube-system".to_owned()],
            ..rule("Its uid identifies the cluster.", "", &["namespaces"], &["get"])
        },
        Rule {
            why: "Discovery, readiness, and metrics for the encryption controller.",
            non_resource_urls: urls,
            verbs: vec!["get"],
            ..Rule::default()
        },
    ]
}

/// The rules of a Job that migrates just these custom resources.
pub(crate) fn job(chosen: &[GroupResource]) -> Vec<Rule> {
    let crds: Vec<String> = chosen.iter().map(ToString::to_string).collect();
    let registered: Vec<String> = chosen.iter().map(storage_version::name).collect();
    let named = |names: &[String], rule: Rule| Rule { resource_names: names.to_vec(), ..rule };
    let (extensions, definitions) = ("apiextensions.k8s.io", ["customresourcedefinitions"]);
    let mut rules = rewrite_rules(chosen, Listing::Chunked);
    rules.extend([
        rule(
            "Which resources there are. (RBAC cannot restrict list by name.)",
            extensions,
            &definitions,
            &["list"],
        ),
        named(
            &crds,
            rule("Changes of these CRDs stop the run.", extensions, &definitions, &["get", "watch"]),
        ),
        named(
            &crds,
            rule(
                "status.storedVersions is reduced after a verified run.",
                extensions,
                &["customresourcedefinitions/status"],
                &["patch"],
            ),
        ),
        rule("Which APIs are aggregated.", "apiregistration.k8s.io", &["apiservices"], &["list"]),
        named(
            &registered,
            rule(
                "What the API servers have registered for these resources, where that API is served.",
                "internal.apiserver.k8s.io",
                &["storageversions"],
                &["get", "watch"],
            ),
        ),
    ]);
    rules
}

/// The rules of such a Job in kube-system and in default, which show which API servers there are.
pub(crate) fn job_members() -> [(&'static str, Vec<Rule>); 2] {
    let leases = "The identity Leases show which API servers exist.";
    let addresses = "If there are no identity Leases: the addresses behind the Service kubernetes.";
    [
        ("kube-system", vec![rule(leases, "coordination.k8s.io", &["leases"], &["list"])]),
        ("default", vec![rule(addresses, "discovery.k8s.io", &["endpointslices"], &["list"])]),
    ]
}

/// The rules in restow's own namespace.
pub(crate) fn own() -> Vec<Rule> {
    let lease = ["leases"];
    let group = "coordination.k8s.io";
    vec![
        rule("One replica leads. (RBAC cannot restrict create by name.)", group, &lease, &["create"]),
        Rule {
            resource_names: vec![NAME.to_owned()],
            ..rule("The Lease of the leader.", group, &lease, &["get", "update", "patch"])
        },
        events(),
    ]
}

/// The rules in kube-system.
pub(crate) fn kube_system() -> Vec<Rule> {
    let why = "The identity Leases show which API servers exist.";
    vec![rule(why, "coordination.k8s.io", &["leases"], &["list", "watch"])]
}

/// The rules in default.
pub(crate) fn default() -> Vec<Rule> {
    let why = "If there are no identity Leases: the addresses behind the Service kubernetes.";
    vec![rule(why, "discovery.k8s.io", &["endpointslices"], &["list"]), events()]
}

fn events() -> Rule {
    let why = "Events of cluster-scoped objects are stored in the namespace default.";
    let mut rule = rule(why, "", &["events"], &["create", "patch"]);
    rule.api_groups.push("events.k8s.io".to_owned());
    rule
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::controller::ALL;

    fn names(names: &[&str]) -> Vec<GroupResource> {
        names.iter().map(|name| GroupResource::parse(name)).collect()
    }

    /// The verbs on a resource, over all rules that name it, wherever and however narrowly.
    fn verbs(rules: &[Rule], name: &str) -> BTreeSet<&'static str> {
        let name = GroupResource::parse(name);
        let on =
            |rule: &&Rule| rule.api_groups.contains(&name.group) && rule.resources.contains(&name.resource);
        rules.iter().filter(on).flat_map(|rule| rule.verbs.iter().copied()).collect()
    }

    fn everywhere(chosen: &[&str], controllers: &[Controller]) -> Vec<Rule> {
        let mut rules = cluster(&names(chosen), controllers, InTree::Unused, Listing::Chunked);
        rules.extend(own().into_iter().chain(kube_system()).chain(default()));
        rules
    }

    #[test]
    fn chosen_resources_may_only_be_listed_and_patched() {
        let chosen = ["secrets", "configmaps", "deployments.apps", "widgets.example.com", "secrets"];
        let rules = everywhere(&chosen, &ALL);
        for name in ["secrets", "configmaps", "deployments.apps", "widgets.example.com"] {
            assert_eq!(verbs(&rules, name), BTreeSet::from(["list", "patch"]), "{name}");
        }
        for name in ["pods", "roles.rbac.authorization.k8s.io", "gadgets.example.com", "secrets.example.com"]
        {
            assert_eq!(verbs(&rules, name), BTreeSet::new(), "{name}");
        }
        let core = serde_json::to_value(&rules[0]).unwrap();
        let expected = serde_json::json!({"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["list", "patch"]});
        assert_eq!(core, expected);
    }

    #[test]
    fn watch_is_granted_only_where_lists_are_streamed() {
        for (listing, expected) in [
            (Listing::Chunked, BTreeSet::from(["list", "patch"])),
            (Listing::Streamed, BTreeSet::from(["list", "patch", "watch"])),
        ] {
            let rules = cluster(&names(&["secrets"]), &ALL, InTree::Unused, listing);
            assert_eq!(verbs(&rules, "secrets"), expected, "{listing:?}");
            assert_eq!(verbs(&rules, "pods"), BTreeSet::new());
        }
    }

    #[test]
    fn nothing_is_granted_by_wildcard_and_nothing_grants_more() {
        let chosen = ["secrets", "clusterroles.rbac.authorization.k8s.io", "storagestates.migration.k8s.io"];
        for controllers in [&ALL[..], &ALL[..1], &[]] {
            for rule in everywhere(&chosen, controllers) {
                let words = rule.api_groups.iter().chain(&rule.resources).map(String::as_str);
                assert!(words.chain(rule.verbs.iter().copied()).all(|word| !word.contains('*')), "{rule:?}");
                for verb in ["escalate", "bind", "impersonate", "deletecollection", "approve", "sign"] {
                    assert!(!rule.verbs.contains(&verb), "{rule:?}");
                }
                let reads = rule.verbs.contains(&"get") || rule.verbs.contains(&"watch");
                assert!(!(reads && rule.resources.iter().any(|resource| resource == "secrets")), "{rule:?}");
                assert!(!rule.why.is_empty());
            }
        }
    }

    #[test]
    fn each_controller_adds_what_it_needs() {
        let status = "customresourcedefinitions/status.apiextensions.k8s.io";
        for (controllers, prunes, reads_metrics) in [
            (&ALL[..], true, true),
            (&[Controller::Migrator, Controller::Trigger][..], false, false),
            (&[Controller::Pruner], true, false),
            (&[Controller::Encryption], false, true),
        ] {
            let rules = cluster(&[], controllers, InTree::Unused, Listing::Chunked);
            assert_eq!(verbs(&rules, status).contains("patch"), prunes, "{controllers:?}");
            let metrics = rules.iter().any(|rule| rule.non_resource_urls.contains(&"/metrics"));
            assert_eq!(metrics, reads_metrics, "{controllers:?}");
            assert!(verbs(&rules, "storageversionmigrations.migration.k8s.io").contains("watch"));
        }
    }

    #[test]
    fn the_built_in_api_is_granted_only_when_it_is_used() {
        let name = "storageversionmigrations.storagemigration.k8s.io";
        for (usage, expected) in [
            (InTree::Unused, BTreeSet::new()),
            (InTree::Backend, BTreeSet::from(["get", "list", "create", "delete"])),
            (InTree::Adopted, BTreeSet::from(["get", "list", "watch"])),
        ] {
            assert_eq!(verbs(&cluster(&[], &ALL, usage, Listing::Chunked), name), expected, "{usage:?}");
        }
    }

    #[test]
    fn a_job_may_change_only_its_own_resources_and_definitions() {
        let rules = job(&names(&["widgets.example.com"]));
        assert_eq!(verbs(&rules, "widgets.example.com"), BTreeSet::from(["list", "patch"]));
        for name in ["gadgets.example.com", "secrets", "leases.coordination.k8s.io", "namespaces"] {
            assert_eq!(verbs(&rules, name), BTreeSet::new(), "{name}");
        }
        let others = rules.iter().filter(|rule| rule.api_groups != ["example.com"]);
        for rule in others.filter(|rule| rule.verbs != ["list"]) {
            assert_eq!(rule.resource_names.len(), 1, "{rule:?}");
            assert!(rule.resource_names[0].contains("widgets"), "{rule:?}");
        }
        let changes = ["create", "update", "patch", "delete"];
        let of_definitions = verbs(&rules, "customresourcedefinitions.apiextensions.k8s.io");
        assert!(of_definitions.iter().all(|verb| !changes.contains(verb)), "{of_definitions:?}");
    }

    #[test]
    fn own_definitions_do_not_change_the_rules() {
        let migrations = names(&["secrets", "storagestates.migration.k8s.io"]);
        assert_eq!(
            cluster(&migrations, &ALL, InTree::Unused, Listing::Chunked),
            cluster(&names(&["secrets"]), &ALL, InTree::Unused, Listing::Chunked)
        );
    }
}
