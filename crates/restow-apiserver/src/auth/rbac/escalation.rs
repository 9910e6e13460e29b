//! Privilege escalation: users cannot grant permissions that they do not have.

use std::collections::{BTreeMap, BTreeSet};

use restow_core::resource::name::GroupResource;
use serde_json::Value;

use super::policy::{Kind, Policy};
use super::roles::{Binding, Role};
use super::rule::{ALL, Rule, has, path_covers};
use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::auth::user::User;
use crate::http::status::StatusError;

/// How many permissions are compared with those of the writer: the product of verbs, groups, resources and names.
const MOST_PERMISSIONS: usize = 100_000;
/// How many entries of the writer's rules are compared.
const MOST_COMPARISONS: usize = 50_000_000;
/// How many missing permissions are reported.
const MOST_MISSING: usize = 500;

/// A role or binding would grant more than its writer has: 403 with this message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EscalationError {
    /// The writer does not have these permissions.
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
    /// The rules expand to more permissions than are compared.
    #[error("the rules expand to more than {MOST_PERMISSIONS} permissions; split them into several roles")]
    TooMany,
    /// An aggregationRule, which can select any rule.
    #[error("must have cluster-admin privileges to use the aggregationRule")]
    Aggregation,
    /// A binding names a role that does not exist.
    #[error("{0}")]
    NoRole(String),
}

impl EscalationError {
    /// The error of a refused write.
    pub(crate) fn failure(&self, kind: Kind, name: &str) -> StatusError {
        match self {
            Self::NoRole(message) => {
                StatusError::not_found(&GroupResource::new(super::roles::GROUP, "clusterrole"), "")
                    .with_message(message)
            }
            _ => {
                let resource = GroupResource::new(super::roles::GROUP, kind.resource());
                StatusError::forbidden_object(&resource, name, &self.to_string())
            }
        }
    }
}

/// Whether a user may store a role or binding in place of the current one.
pub(crate) fn permit_write(
    policy: &Policy,
    user: &User,
    kind: Kind,
    object: &Value,
    before: Option<&Value>,
) -> Result<(), EscalationError> {
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
) -> Result<(), EscalationError> {
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
        held(user, &own, everything().iter()).map_err(|_| EscalationError::Aggregation)?;
    }
    Ok(())
}

fn permit_binding(
    policy: &Policy,
    user: &User,
    namespace: &str,
    object: &Value,
) -> Result<(), EscalationError> {
    let role = read::<Binding>(object).role_ref;
    let resource = if role.kind == "Role" { "roles" } else { "clusterroles" };
    // Whatever group the binding names, it grants this role.
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
    let rules = policy.rules_of(&role, namespace).map_err(EscalationError::NoRole)?;
    held(user, &policy.rules_for(user, namespace), rules)
}

fn read<T: Default + serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap_or_default()
}

/// Whether only fields differ that the garbage collector writes.
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

/// Whether the rules of a user cover others.
fn held<'a>(
    user: &User,
    own: &[&Rule],
    wanted: impl Iterator<Item = &'a Rule>,
) -> Result<(), EscalationError> {
    let wanted: Vec<&Rule> = wanted.collect();
    if wanted.iter().fold(0, |sum: usize, rule| sum.saturating_add(permissions(rule))) > MOST_PERMISSIONS {
        return Err(EscalationError::TooMany);
    }
    let words = own.iter().fold(0, |sum: usize, rule| sum.saturating_add(words(rule)));
    let looks = wanted.iter().fold(0, |sum: usize, rule| sum.saturating_add(rule.verbs.len() + things(rule)));
    if looks.saturating_mul(words) > MOST_COMPARISONS {
        return Err(EscalationError::TooMany);
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
    Err(EscalationError::NotHeld { user: user.name.clone(), groups, missing: lines })
}

/// The first permissions in `wanted` that `own` does not cover.
///
/// Each verb and each target is compared with each rule of the writer once, not each verb on each target.
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

/// The smallest rule: one verb on one target.
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

/// How many targets a rule has.
fn things(rule: &Rule) -> usize {
    let resources = [rule.resources.len(), rule.resource_names.len().max(1)];
    let resources = resources.into_iter().fold(rule.api_groups.len(), usize::saturating_mul);
    resources.saturating_add(rule.non_resource_urls.len())
}

/// How many entries a rule has.
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

/// Whether a rule has a target, whatever its verbs are.
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

/// The missing permissions, with the verbs of one target together.
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
    fn a_rule_covers_the_permissions_it_grants() {
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
    fn missing_permissions_are_listed() {
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
        assert_eq!(held(&user, &own, [&larger].into_iter()), Err(EscalationError::TooMany));
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
    fn users_cannot_grant_permissions_they_do_not_have() {
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
            // All verbs include `escalate`.
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
            let outcome = match permit_write(&policy(), &User::known(user, [""; 0]), kind, &object, None) {
                Ok(()) => "yes",
                Err(EscalationError::NotHeld { .. }) => "not held",
                Err(EscalationError::Aggregation) => "aggregation",
                Err(EscalationError::TooMany) => "too many",
                Err(EscalationError::NoRole(_)) => "no role",
            };
            assert_eq!(outcome, expected, "{user} {kind:?} {object}");
            assert_eq!(permit_write(&policy(), &User::admin(), kind, &object, None), Ok(()));
        }
    }

    #[test]
    fn changes_of_owner_references_are_no_escalation() {
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
