//! Defaults and validates bindings, as kube-apiserver does.

use serde_json::{Value, json};

use crate::auth::rbac::GROUP;
use crate::http::status::Cause;
use crate::object::meta::NameRule;

/// Defaults the API groups of the role and the subjects.
pub(crate) fn set_defaults(binding: &mut Value) {
    let is_empty = |value: &Value| value["apiGroup"].as_str().unwrap_or_default().is_empty();
    if let Some(role) = binding.get_mut("roleRef").filter(|role| role.is_object() && is_empty(role)) {
        role["apiGroup"] = json!(GROUP);
    }
    let subjects = binding.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten() {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) && is_empty(subject) {
            subject["apiGroup"] = json!(GROUP);
        }
    }
}

/// The errors of a binding with defaults.
pub(crate) fn validate(kind: &str, binding: &Value, old: Option<&Value>) -> Vec<Cause> {
    let namespaced = kind == "RoleBinding";
    let role = &binding["roleRef"];
    let mut causes = Vec::new();
    causes.extend(unsupported("roleRef.apiGroup", text(role, "apiGroup"), &[GROUP]));
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    causes.extend(unsupported("roleRef.kind", text(role, "kind"), kinds));
    match text(role, "name") {
        "" => causes.push(Cause::required("roleRef.name", "")),
        name => causes.extend(errors(NameRule::PathSegment, "roleRef.name", name)),
    }
    let subjects = binding["subjects"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, subject) in subjects.iter().enumerate() {
        causes.extend(validate_subject(subject, namespaced, &format!("subjects[{index}]")));
    }
    if let Some(old) = old {
        // A stored binding without a group means the same role.
        let mut old = old.clone();
        set_defaults(&mut old);
        if old["roleRef"] != *role {
            causes.push(Cause::invalid("roleRef", role, "cannot change roleRef"));
        }
    }
    causes
}

fn validate_subject(subject: &Value, namespaced: bool, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (name, group) = (format!("{path}.name"), format!("{path}.apiGroup"));
    let named = !text(subject, "name").is_empty();
    causes.extend((!named).then(|| Cause::required(&name, "")));
    match text(subject, "kind") {
        "ServiceAccount" => {
            if named {
                causes.extend(errors(NameRule::Subdomain, &name, text(subject, "name")));
            }
            causes.extend(unsupported(&group, text(subject, "apiGroup"), &[""]));
            if !namespaced && text(subject, "namespace").is_empty() {
                causes.push(Cause::required(format!("{path}.namespace"), ""));
            }
        }
        "User" | "Group" => causes.extend(unsupported(&group, text(subject, "apiGroup"), &[GROUP])),
        kind => {
            causes.extend(unsupported(&format!("{path}.kind"), kind, &["ServiceAccount", "User", "Group"]))
        }
    }
    causes
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn unsupported(field: &str, given: &str, known: &[&str]) -> Option<Cause> {
    (!known.contains(&given)).then(|| Cause::not_supported(field, &json!(given), known))
}

fn errors(rule: NameRule, field: &str, name: &str) -> impl Iterator<Item = Cause> {
    rule.errors(name, false).into_iter().map(move |error| Cause::invalid_text(field, name, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_api_group_is_defaulted() {
        let mut binding = json!({
            "roleRef": {"apiGroup": "", "kind": "ClusterRole", "name": "r"},
            "subjects": [
                {"kind": "User", "name": "u"},
                {"kind": "Group", "name": "g", "apiGroup": "x"},
                {"kind": "ServiceAccount", "name": "s"},
                {"kind": "Robot", "name": "r"},
            ],
        });
        set_defaults(&mut binding);
        let groups: Vec<_> =
            binding["subjects"].as_array().unwrap().iter().map(|one| &one["apiGroup"]).collect();
        assert_eq!(binding["roleRef"]["apiGroup"], GROUP);
        assert_eq!(groups, [&json!(GROUP), &json!("x"), &Value::Null, &Value::Null]);
        for mut odd in [json!({}), json!([]), json!({"roleRef": 7, "subjects": {}}), json!(null)] {
            set_defaults(&mut odd);
        }
    }

    #[test]
    fn role_bindings_are_validated() {
        let role =
            |group: &str, kind: &str, name: &str| json!({"apiGroup": group, "kind": kind, "name": name});
        let good = || role(GROUP, "ClusterRole", "r");
        let account =
            |namespace: &str| json!([{"kind": "ServiceAccount", "name": "s", "namespace": namespace}]);
        for (kind, role, subjects, expected) in [
            ("RoleBinding", good(), json!([]), vec![]),
            ("RoleBinding", role(GROUP, "Role", "system:x"), json!([]), vec![]),
            ("ClusterRoleBinding", role(GROUP, "Role", "r"), json!([]), vec!["roleRef.kind"]),
            ("RoleBinding", role("", "ClusterRole", "r"), json!([]), vec!["roleRef.apiGroup"]),
            ("RoleBinding", role("x.example", "ClusterRole", "r"), json!([]), vec!["roleRef.apiGroup"]),
            (
                "RoleBinding",
                role(GROUP, "clusterrole", "a/b"),
                json!([]),
                vec!["roleRef.kind", "roleRef.name"],
            ),
            (
                "RoleBinding",
                json!(null),
                json!(null),
                vec!["roleRef.apiGroup", "roleRef.kind", "roleRef.name"],
            ),
            ("RoleBinding", good(), account(""), vec![]),
            ("ClusterRoleBinding", good(), account(""), vec!["subjects[0].namespace"]),
            ("ClusterRoleBinding", good(), account("a"), vec![]),
            ("RoleBinding", good(), json!([{"kind": "User", "name": "u"}]), vec!["subjects[0].apiGroup"]),
            ("RoleBinding", good(), json!([{"kind": "Robot"}]), vec!["subjects[0].name", "subjects[0].kind"]),
        ] {
            let binding = json!({"roleRef": role, "subjects": subjects});
            let causes = validate(kind, &binding, None);
            let fields: Vec<_> = causes.iter().map(|cause| cause.field.as_str()).collect();
            assert_eq!(fields, expected, "{kind} {binding}");
        }
    }

    #[test]
    fn the_role_ref_of_a_binding_is_immutable() {
        let binding = |group: &str, name: &str| json!({"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}});
        let new = binding(GROUP, "a");
        for (old, expected) in [(binding(GROUP, "a"), 0), (binding("", "a"), 0), (binding(GROUP, "b"), 1)] {
            assert_eq!(validate("RoleBinding", &new, Some(&old)).len(), expected, "{old}");
        }
    }
}
