//! Nobody gives away what they do not have: who may write a role or a binding.

use std::collections::{BTreeMap, BTreeSet};

use restow_core::resource::name::GroupResource;
use serde_json::Value;

use super::policy::{Kind, Policy};
use super::roles::{Binding, Role};
use super::rule::{ALL, Rule, has, path_covers};
use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::auth::user::User;
use crate::http::status::Failure;

/// How many single permissions are compared with those of the writer: verbs, groups, resources and names multiply.
const MOST_PERMISSIONS: usize = 100_000;
/// How many words of the writer's rules are looked at.
const MOST_COMPARISONS: usize = 50_000_000;
/// How many missing permissions are reported.
const MOST_MISSING: usize = 500;

/// A role or binding would give more than its writer has: `forbidden`, with this message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Escalation {
    /// Rules that the writer does not have.
    #[error(
        "user {user:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{missing}"
    )]
    NotHeld {
        /// The writer.
        user: String,
        /// The writer's groups.
        groups: String,
        /// The rules, one for each line.
        missing: String,
    },
    /// Rules that stand for more permissions than are compared.
    #[error("the rules stand for more than {MOST_PERMISSIONS} single permissions: use several roles")]
    TooMany,
    /// Rules that are gathered from others, which can be anything.
    #[error("must have cluster-admin privileges to use the aggregationRule")]
    Aggregation,
    /// A binding names a role that is not there.
    #[error("{0}")]
    NoRole(String),
}

impl Escalation {
    /// The refusal of a write of this kind.
    pub(crate) fn failure(&self, kind: Kind, name: &str) -> Failure {
        match self {
            Self::NoRole(message) => {
                Failure::not_found(&GroupResource::new(super::roles::GROUP, "clusterrole"), "")
                    .with_message(message)
            }
            _ => {
                let resource = GroupResource::new(super::roles::GROUP, kind.resource());
                Failure::forbidden_object(&resource, name, &self.to_string())
            }
        }
    }
}

/// Whether somebody may store a role or binding in the place of what is there.
pub(crate) fn permit_write(
    policy: &Policy,
    user: &User,
    kind: Kind,
    object: &Value,
    before: Option<&Value>,
) -> Result<(), Escalation> {
    if user.is_master() || before.is_some_and(|before| same_but_for_collection(object, before)) {
        return Ok(());
    }
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    match kind {
        Kind::Role | Kind::ClusterRole => permit_role(policy, user, kind, (namespace, name), object, before),
        Kind::RoleBinding | Kind::ClusterRoleBinding => permit_binding(policy, user, namespace, object),
    }
}

fn permit_role(
    policy: &Policy,
    user: &User,
    kind: Kind,
    (namespace, name): (&str, &str),
    object: &Value,
    before: Option<&Value>,
) -> Result<(), Escalation> {
    let resource = kind.resource();
    let on = ResourceAttributes { group: super::roles::GROUP, resource, subresource: "", namespace, name };
    if policy.allows(user, &Attributes::of_resource("escalate", on)) {
        return Ok(());
    }
    let role = read::<Role>(object);
    let own = policy.rules_for(user, namespace);
    held(user, &own, role.rules.iter())?;
    let gathers = |role: &Role| {
        role.aggregation_rule.as_ref().is_some_and(|rule| !rule.cluster_role_selectors.is_empty())
    };
    if gathers(&role) || before.is_some_and(|before| gathers(&read(before))) {
        held(user, &own, everything().iter()).map_err(|_| Escalation::Aggregation)?;
    }
    Ok(())
}

fn permit_binding(policy: &Policy, user: &User, namespace: &str, object: &Value) -> Result<(), Escalation> {
    let role = read::<Binding>(object).role_ref;
    let resource = if role.kind == "Role" { "roles" } else { "clusterroles" };
    // Whatever group the binding names: it is this role that it gives.
    let on = ResourceAttributes {
        group: super::roles::GROUP,
        resource,
        subresource: "",
        namespace,
        name: &role.name,
    };
    if policy.allows(user, &Attributes::of_resource("bind", on)) {
        return Ok(());
    }
    let rules = policy.rules_of(&role, namespace).map_err(Escalation::NoRole)?;
    held(user, &policy.rules_for(user, namespace), rules)
}

fn read<T: Default + serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap_or_default()
}

/// Whether only what garbage collection writes differs.
fn same_but_for_collection(object: &Value, before: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields", "selfLink"] {
                metadata.remove(field);
            }
        }
        object
    };
    rest(object) == rest(before)
}

fn everything() -> [Rule; 2] {
    let all = || vec![ALL.to_owned()];
    [
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
    ]
}

/// Whether somebody's rules cover others.
fn held<'a>(user: &User, own: &[&Rule], wanted: impl Iterator<Item = &'a Rule>) -> Result<(), Escalation> {
    let wanted: Vec<&Rule> = wanted.collect();
    if wanted.iter().fold(0, |sum: usize, rule| sum.saturating_add(permissions(rule))) > MOST_PERMISSIONS {
        return Err(Escalation::TooMany);
    }
    let words = own.iter().fold(0, |sum: usize, rule| sum.saturating_add(words(rule)));
    let looks = wanted.iter().fold(0, |sum: usize, rule| sum.saturating_add(rule.verbs.len() + things(rule)));
    if looks.saturating_mul(words) > MOST_COMPARISONS {
        return Err(Escalation::TooMany);
    }
    let missing = missing(own, &wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let groups = quoted(user.groups.iter().map(String::as_str));
    let mut lines = described(&missing);
    if missing.len() == MOST_MISSING {
        lines.push_str("\n(there may be more)");
    }
    Err(Escalation::NotHeld { user: user.name.clone(), groups, missing: lines })
}

/// The first permissions of some rules that others do not cover.
///
/// Each verb and each thing is held against each of the writer's rules once, not each verb on each thing.
fn missing<'a>(own: &[&Rule], wanted: &[&'a Rule]) -> Vec<Atom<'a>> {
    let mut missing = Vec::new();
    for rule in wanted {
        let verbs = rule.verbs.iter().map(|verb| (verb.as_str(), matching(own, |own| has(&own.verbs, verb))));
        let verbs: Vec<(&str, Vec<u64>)> = verbs.collect();
        for on in things_of(rule) {
            let covering = matching(own, |own| covers(own, on));
            for (verb, having) in &verbs {
                if !having.iter().zip(&covering).any(|(one, other)| one & other != 0) {
                    missing.push(Atom { verb, on });
                }
                if missing.len() == MOST_MISSING {
                    return missing;
                }
            }
        }
    }
    missing
}

/// Which rules match, one bit for each.
fn matching(rules: &[&Rule], matches: impl Fn(&Rule) -> bool) -> Vec<u64> {
    let bits = |rules: &[&Rule]| {
        rules.iter().enumerate().fold(0, |bits, (at, rule)| bits | u64::from(matches(rule)) << at)
    };
    rules.chunks(64).map(bits).collect()
}

/// The smallest rule: one verb on one thing.
#[derive(Clone, Copy)]
struct Atom<'a> {
    verb: &'a str,
    on: AtomOn<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AtomOn<'a> {
    Resource { group: &'a str, resource: &'a str, name: Option<&'a str> },
    Path(&'a str),
}

/// How many atoms a rule has.
fn permissions(rule: &Rule) -> usize {
    things(rule).saturating_mul(rule.verbs.len())
}

/// How many things a rule is about.
fn things(rule: &Rule) -> usize {
    let resources = [rule.resources.len(), rule.resource_names.len().max(1)];
    let resources = resources.into_iter().fold(rule.api_groups.len(), usize::saturating_mul);
    resources.saturating_add(rule.non_resource_urls.len())
}

/// How many words a rule has.
fn words(rule: &Rule) -> usize {
    [&rule.verbs, &rule.api_groups, &rule.resources, &rule.resource_names, &rule.non_resource_urls]
        .iter()
        .map(|words| words.len())
        .sum()
}

fn things_of(rule: &Rule) -> Vec<AtomOn<'_>> {
    let mut on = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let mut names: Vec<Option<&str>> = rule.resource_names.iter().map(|n| Some(n.as_str())).collect();
            if names.is_empty() {
                names.push(None);
            }
            on.extend(names.into_iter().map(|name| AtomOn::Resource { group, resource, name }));
        }
    }
    on.extend(rule.non_resource_urls.iter().map(|path| AtomOn::Path(path)));
    on
}

/// Whether a rule is about a thing, whatever its verbs are.
fn covers(own: &Rule, on: AtomOn<'_>) -> bool {
    match on {
        AtomOn::Path(path) => own.non_resource_urls.iter().any(|own| path_covers(own, path)),
        AtomOn::Resource { group, resource, name } => {
            has(&own.api_groups, group)
                && covers_resource(&own.resources, resource)
                && (own.resource_names.is_empty()
                    || name.is_some_and(|name| own.resource_names.iter().any(|own| own == name)))
        }
    }
}

fn covers_resource(own: &[String], resource: &str) -> bool {
    has(own, resource)
        || resource.split_once('/').is_some_and(|(_, below)| {
            own.iter().any(|own| own.strip_prefix("*/").is_some_and(|own| own == below))
        })
}

/// What is missing, verbs on one thing together.
fn described(missing: &[Atom<'_>]) -> String {
    let mut verbs: BTreeMap<AtomOn<'_>, Vec<&str>> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for atom in missing {
        match atom.on {
            AtomOn::Path(path) => {
                lines.insert(format!(
                    "{{NonResourceURLs:{}, Verbs:{}}}",
                    quoted([path].into_iter()),
                    quoted([atom.verb].into_iter())
                ));
            }
            on => verbs.entry(on).or_default().push(atom.verb),
        }
    }
    for (on, verbs) in verbs {
        let AtomOn::Resource { group, resource, name } = on else { continue };
        let names =
            name.map(|name| format!(", ResourceNames:{}", quoted([name].into_iter()))).unwrap_or_default();
        let (group, resource) = (quoted([group].into_iter()), quoted([resource].into_iter()));
        let verbs = quoted(verbs.into_iter());
        lines.insert(format!("{{APIGroups:{group}, Resources:{resource}{names}, Verbs:{verbs}}}"));
    }
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

/// `["a" "b"]`.
fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    format!("[{}]", words.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::rule::rule;
    use super::*;

    #[test]
    fn rules_cover_what_they_allow() {
        for (own, wanted, expected) in [
            ("get|-|pods", "get|-|pods", true),
            ("get|-|pods", "get list|-|pods", false),
            ("get list|-|pods secrets", "list|-|secrets", true),
            ("*|*|*", "get|apps|deployments/scale|x", true),
            ("*|*|*", "get|/x", false),
            ("*|*", "get|/x", true),
            ("get|/a/*", "get|/a/b", true),
            ("get|/a/*", "get|/a/*", true),
            ("get|/a/b", "get|/a/*", false),
            ("get|-|*/status", "get|-|pods/status", true),
            ("get|-|pods/status", "get|-|*/status", false),
            ("get|-|pods", "get|-|*", false),
            ("get|-|pods", "*|-|pods", false),
            ("get|-|pods|web", "get|-|pods|web", true),
            ("get|-|pods|web", "get|-|pods|db", false),
            ("get|-|pods|web", "get|-|pods", false),
            ("get|-|pods", "get|-|pods|web", true),
            ("get|-|pods", "||", true),
        ] {
            let (own, wanted) = (rule(own), rule(wanted));
            let user = User::known("alice", ["dev"]);
            assert_eq!(held(&user, &[&own], [&wanted].into_iter()).is_ok(), expected, "{own:?} {wanted:?}");
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        let user = User::known("alice", ["dev"]);
        let wanted = [rule("get list|- apps|pods|web"), rule("get|/x")];
        assert_eq!(
            held(&user, &[], wanted.iter()).unwrap_err().to_string(),
            "user \"alice\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions \
             not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], ResourceNames:[\"web\"], Verbs:[\"get\" \"list\"]}\n\
             {APIGroups:[\"apps\"], Resources:[\"pods\"], ResourceNames:[\"web\"], Verbs:[\"get\" \"list\"]}\n\
             {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}"
        );
    }

    #[test]
    fn a_large_role_is_compared_with_many_rules_in_a_short_time() {
        let user = User::known("alice", ["dev"]);
        let many = |prefix: &str| (0..316).map(|n| format!("{prefix}{n}")).collect();
        let wanted = Rule { verbs: many("v"), non_resource_urls: many("/x"), ..Rule::default() };
        let own: Vec<Rule> = (0..20_000).map(|n| rule(&format!("v{}|/x{n}", n % 316))).collect();
        let own: Vec<&Rule> = own.iter().collect();
        let start = restow_clock::Instant::now();
        let refused = held(&user, &own, [&wanted].into_iter()).unwrap_err().to_string();
        assert!(refused.ends_with("(there may be more)"), "{refused}");
        assert!(refused.lines().count() <= MOST_MISSING + 2);
        let all = rule("*|*");
        let with_all: Vec<&Rule> = own.iter().copied().chain([&all]).collect();
        assert_eq!(held(&user, &with_all, [&wanted].into_iter()), Ok(()));
        let larger = Rule { non_resource_urls: vec!["/y".to_owned(); 10_000], ..all.clone() };
        assert_eq!(held(&user, &own, [&larger].into_iter()), Err(Escalation::TooMany));
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    }

    fn policy() -> Policy {
        let mut policy = Policy::default();
        let mut set = |kind, namespace: &str, name: &str, object: Value| {
            policy.set(kind, namespace, name, Some(object.to_string().as_bytes()));
        };
        let on = |verbs: &[&str], group: &str, resource: &str| json!({"rules": [{"verbs": verbs, "apiGroups": [group], "resources": [resource]}]});
        set(Kind::ClusterRole, "", "pods", on(&["get", "list"], "", "pods"));
        set(Kind::ClusterRole, "", "nodes", on(&["get"], "", "nodes"));
        set(Kind::ClusterRole, "", "escalator", on(&["escalate"], super::super::roles::GROUP, "*"));
        set(Kind::ClusterRole, "", "binder", on(&["bind"], super::super::roles::GROUP, "clusterroles"));
        set(Kind::ClusterRole, "", "core", on(&["*"], "", "*"));
        set(Kind::ClusterRole, "", "all", on(&["*"], "*", "*"));
        let bind = |user: &str, role: &str| {
            json!({
                "subjects": [{"kind": "User", "name": user}],
                "roleRef": {"apiGroup": super::super::roles::GROUP, "kind": "ClusterRole", "name": role},
            })
        };
        set(Kind::ClusterRoleBinding, "", "pods", bind("poddy", "pods"));
        set(Kind::ClusterRoleBinding, "", "escalator", bind("escalator", "escalator"));
        set(Kind::RoleBinding, "a", "pods", bind("local", "pods"));
        set(Kind::RoleBinding, "a", "binder", bind("binder", "binder"));
        set(Kind::RoleBinding, "a", "core", bind("core", "core"));
        set(Kind::ClusterRoleBinding, "", "all", bind("all-resources", "all"));
        policy
    }

    #[test]
    fn nobody_gives_away_what_they_do_not_have() {
        let role = |namespace: &str, resource: &str| {
            json!({
                "metadata": {"name": "r", "namespace": namespace},
                "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}],
            })
        };
        let binding = |namespace: &str, kind: &str, name: &str| {
            json!({
                "metadata": {"name": "b", "namespace": namespace},
                "roleRef": {"apiGroup": super::super::roles::GROUP, "kind": kind, "name": name},
            })
        };
        let in_group = |group: &str, name: &str| {
            let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": name});
            json!({"metadata": {"name": "b", "namespace": "a"}, "roleRef": role})
        };
        let product = |count: usize| {
            let all: Vec<String> = (0..count).map(|index| format!("x{index}")).collect();
            json!({"metadata": {"name": "p"}, "rules": [{"verbs": all, "apiGroups": all, "resources": all}]})
        };
        let gathering = json!({
            "metadata": {"name": "g"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
        });
        use Kind::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
        for (user, kind, object, expected) in [
            ("poddy", ClusterRole, role("", "pods"), "yes"),
            ("poddy", ClusterRole, role("", "secrets"), "not held"),
            ("poddy", Role, role("a", "pods"), "yes"),
            ("local", Role, role("a", "pods"), "yes"),
            ("local", Role, role("b", "pods"), "not held"),
            ("local", ClusterRole, role("", "pods"), "not held"),
            ("escalator", ClusterRole, role("", "secrets"), "yes"),
            ("escalator", ClusterRole, gathering.clone(), "yes"),
            ("poddy", ClusterRole, gathering.clone(), "aggregation"),
            ("poddy", ClusterRole, product(100_000), "too many"),
            ("poddy", ClusterRole, product(10), "not held"),
            ("escalator", ClusterRole, product(100_000), "yes"),
            // All verbs are among them `escalate`.
            ("all-resources", ClusterRole, gathering, "yes"),
            ("poddy", ClusterRoleBinding, binding("", "ClusterRole", "pods"), "yes"),
            ("poddy", ClusterRoleBinding, binding("", "ClusterRole", "nodes"), "not held"),
            ("poddy", RoleBinding, binding("a", "ClusterRole", "pods"), "yes"),
            ("poddy", RoleBinding, binding("a", "Role", "none"), "no role"),
            ("poddy", RoleBinding, binding("a", "ClusterRole", "none"), "no role"),
            ("poddy", RoleBinding, json!({"metadata": {"namespace": "a"}}), "no role"),
            ("local", RoleBinding, binding("a", "ClusterRole", "pods"), "yes"),
            ("local", ClusterRoleBinding, binding("", "ClusterRole", "pods"), "not held"),
            ("core", RoleBinding, in_group("", "escalator"), "not held"),
            ("core", RoleBinding, in_group("x.example", "escalator"), "not held"),
            ("binder", RoleBinding, in_group("", "nodes"), "yes"),
            ("binder", RoleBinding, binding("a", "ClusterRole", "nodes"), "yes"),
            ("binder", RoleBinding, binding("b", "ClusterRole", "nodes"), "not held"),
            ("binder", ClusterRoleBinding, binding("", "ClusterRole", "nodes"), "not held"),
        ] {
            let told = match permit_write(&policy(), &User::known(user, [""; 0]), kind, &object, None) {
                Ok(()) => "yes",
                Err(Escalation::NotHeld { .. }) => "not held",
                Err(Escalation::Aggregation) => "aggregation",
                Err(Escalation::TooMany) => "too many",
                Err(Escalation::NoRole(_)) => "no role",
            };
            assert_eq!(told, expected, "{user} {kind:?} {object}");
            assert_eq!(permit_write(&policy(), &User::admin(), kind, &object, None), Ok(()));
        }
    }

    #[test]
    fn what_garbage_collection_writes_is_no_gift() {
        let user = User::known("nobody", [""; 0]);
        let before = json!({"metadata": {"name": "r", "finalizers": ["x"]}, "rules": [{"verbs": ["get"],
            "nonResourceURLs": ["/x"]}]});
        let mut after = before.clone();
        after["metadata"]["finalizers"] = json!([]);
        assert_eq!(permit_write(&policy(), &user, Kind::ClusterRole, &after, Some(&before)), Ok(()));
        after["metadata"]["labels"] = json!({"a": "b"});
        assert!(permit_write(&policy(), &user, Kind::ClusterRole, &after, Some(&before)).is_err());
    }
}
