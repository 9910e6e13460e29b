//! Changes of an object that matter to an administrator: permissions, and what the pods run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The changes of an object, a line for each; none for what has no permissions and runs nothing.
pub(crate) fn changes(before: &Value, after: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let (had, has) = (grants(before), grants(after));
    lines.extend(listed("+", has.difference(&had)));
    lines.extend(listed("-", had.difference(&has)));
    let (old, new) = (container(before), container(after));
    if old["image"] != new["image"] {
        lines.push(format!("image {} -> {}", text(&old["image"]), text(&new["image"])));
    }
    let words = |container: &Value| -> BTreeSet<String> {
        container["args"].as_array().into_iter().flatten().map(text).collect()
    };
    let (old, new) = (words(old), words(new));
    lines.extend(new.difference(&old).map(|word| format!("+ {word}")));
    lines.extend(old.difference(&new).map(|word| format!("- {word}")));
    lines
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("none").to_owned()
}

fn container(object: &Value) -> &Value {
    &object["spec"]["template"]["spec"]["containers"][0]
}

/// A permission: the resource and the verb.
type Grant = (String, String);

/// All permissions that a role grants.
fn grants(role: &Value) -> BTreeSet<Grant> {
    let words = |rule: &Value, field: &str| -> Vec<String> {
        rule[field].as_array().into_iter().flatten().map(text).collect()
    };
    let mut grants = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let mut things = words(rule, "nonResourceURLs");
        let names = words(rule, "resourceNames").join(", ");
        for group in words(rule, "apiGroups") {
            let dot = if group.is_empty() { "" } else { "." };
            let full = |resource: &String| match names.as_str() {
                "" => format!("{resource}{dot}{group}"),
                names => format!("{resource}{dot}{group} ({names})"),
            };
            things.extend(words(rule, "resources").iter().map(full));
        }
        for thing in things {
            grants.extend(words(rule, "verbs").into_iter().map(|verb| (thing.clone(), verb)));
        }
    }
    grants
}

/// Permissions as lines, grouped by verbs.
fn listed<'a>(sign: &str, grants: impl Iterator<Item = &'a Grant>) -> Vec<String> {
    let mut verbs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (thing, verb) in grants {
        verbs.entry(thing).or_default().push(verb);
    }
    let mut things: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (thing, verbs) in verbs {
        things.entry(verbs.join(", ")).or_default().push(thing);
    }
    things.iter().map(|(verbs, things)| format!("{sign} {verbs}: {}", things.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(resources: &[&str]) -> Value {
        json!({"rules": [
            {"apiGroups": [""], "resources": resources, "verbs": ["list", "patch"]},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]},
        ]})
    }

    fn deployment(image: &str, args: &[&str]) -> Value {
        json!({"spec": {"template": {"spec": {"containers": [{"image": image, "args": args}]}}}})
    }

    #[test]
    fn permissions_images_and_flags_are_compared() {
        let nothing = json!({});
        for (before, after, expected) in [
            (role(&["secrets"]), role(&["secrets"]), vec![]),
            (
                role(&["secrets"]),
                role(&["pods", "configmaps", "secrets"]),
                vec!["+ list, patch: configmaps, pods"],
            ),
            (role(&["secrets", "pods"]), role(&["secrets"]), vec!["- list, patch: pods"]),
            (
                nothing.clone(),
                role(&["secrets"]),
                vec!["+ get: namespaces (kube-system)", "+ list: deployments.apps", "+ list, patch: secrets"],
            ),
            (deployment("a", &["--pace=fast"]), deployment("a", &["--pace=fast"]), vec![]),
            (
                deployment("a", &["--resources=secrets", "x"]),
                deployment("b", &["x", "--pace=fast"]),
                vec!["image a -> b", "+ --pace=fast", "- --resources=secrets"],
            ),
            (nothing.clone(), nothing.clone(), vec![]),
        ] {
            assert_eq!(changes(&before, &after), expected, "{before} {after}");
        }
    }
}
