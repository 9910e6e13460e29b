//! One rule of a role, and what it allows.

use serde::{Deserialize, Deserializer, Serialize};

use crate::auth::attributes::{Attributes, AttributesTarget, ResourceAttributes};
#[cfg(test)]
pub(super) use tests::rule;

/// Matches all verbs, groups, resources or paths.
pub(super) const ALL: &str = "*";

/// A rule: its verbs on its resources, or on its paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    #[serde(deserialize_with = "list")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// The resources: `pods`, `pods/log`, `*/status` or `*`.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The names of objects; empty for all.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// The paths.
    #[serde(rename = "nonResourceURLs", deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// A list that may be null.
pub(super) fn list<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Rule {
    /// Whether it allows a request.
    pub(crate) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        has(&self.verbs, attributes.verb)
            && match &attributes.on {
                AttributesTarget::Resource(resource) => self.allows_on(resource),
                AttributesTarget::Path(path) => {
                    self.non_resource_urls.iter().any(|own| path_covers(own, path))
                }
            }
    }

    fn allows_on(&self, on: &ResourceAttributes<'_>) -> bool {
        has(&self.api_groups, on.group)
            && self.resources.iter().any(|own| names(own, on.resource, on.subresource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|own| own == on.name))
    }
}

/// Whether a list has an entry, or `*`.
pub(super) fn has(set: &[String], wanted: &str) -> bool {
    set.iter().any(|own| own == ALL || own == wanted)
}

/// Whether an entry of a rule matches a resource.
fn names(own: &str, resource: &str, subresource: &str) -> bool {
    if own == ALL {
        return true;
    }
    match own.split_once('/') {
        None => subresource.is_empty() && own == resource,
        Some((before, after)) => {
            !subresource.is_empty() && after == subresource && (before == ALL || before == resource)
        }
    }
}

/// Whether an entry of a rule matches a path.
pub(super) fn path_covers(own: &str, path: &str) -> bool {
    own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        // `-` is the core group, which has no name.
        text.split_whitespace()
            .map(|word| if word == "-" { String::new() } else { word.to_owned() })
            .collect()
    }

    /// `verbs|groups|resources|names` or `verbs|paths`.
    pub(in super::super) fn rule(text: &str) -> Rule {
        let parts: Vec<&str> = text.split('|').collect();
        match parts[..] {
            [verbs, paths] => {
                Rule { verbs: words(verbs), non_resource_urls: words(paths), ..Rule::default() }
            }
            [verbs, groups, resources, ref names @ ..] => Rule {
                verbs: words(verbs),
                api_groups: words(groups),
                resources: words(resources),
                resource_names: names.first().map(|names| words(names)).unwrap_or_default(),
                ..Rule::default()
            },
            _ => panic!("a rule"),
        }
    }

    fn resource<'a>(verb: &'a str, group: &'a str, what: &'a str, name: &'a str) -> Attributes<'a> {
        let (resource, subresource) = what.split_once('/').unwrap_or((what, ""));
        Attributes::of_resource(
            verb,
            ResourceAttributes { group, resource, subresource, name, ..ResourceAttributes::default() },
        )
    }

    #[test]
    fn resource_rules_match_verb_group_resource_and_name() {
        for (text, verb, group, what, name, expected) in [
            ("get|-|pods", "get", "", "pods", "", true),
            ("get|-|pods", "get", "", "pods", "web", true),
            ("get|-|pods", "list", "", "pods", "", false),
            ("get|-|pods", "get", "apps", "pods", "", false),
            ("get|-|pods", "get", "", "secrets", "", false),
            ("get list|- apps|pods deployments", "list", "apps", "deployments", "", true),
            ("*|-|pods", "impersonate", "", "pods", "", true),
            ("get|*|pods", "get", "any.example.com", "pods", "", true),
            ("get|-|*", "get", "", "pods", "", true),
            ("get|-|*", "get", "", "pods/status", "", true),
            ("get|-|pods", "get", "", "pods/status", "", false),
            ("get|-|pods/status", "get", "", "pods/status", "web", true),
            ("get|-|pods/status", "get", "", "pods", "", false),
            ("get|-|*/status", "get", "", "pods/status", "", true),
            ("get|-|*/status", "get", "", "pods/scale", "", false),
            ("get|-|*/status", "get", "", "pods", "", false),
            // A star is allowed only before the slash: kube-apiserver knows no `pods/*`.
            ("get|-|pods/*", "get", "", "pods/status", "", false),
            ("get|-|*/*", "get", "", "pods/status", "", false),
            ("get|-|pods/", "get", "", "pods", "", false),
            ("get|-|pods|web db", "get", "", "pods", "web", true),
            ("get|-|pods|web db", "get", "", "pods", "other", false),
            ("get|-|pods|web db", "get", "", "pods", "", false),
            ("get|-|pods|*", "get", "", "pods", "web", false),
            ("get|/pods", "get", "", "pods", "", false),
            ("||", "get", "", "pods", "", false),
            ("get||pods", "get", "", "pods", "", false),
        ] {
            let attributes = resource(verb, group, what, name);
            assert_eq!(rule(text).allows(&attributes), expected, "{text}: {attributes:?}");
        }
    }

    #[test]
    fn non_resource_rules_match_paths() {
        for (text, verb, path, expected) in [
            ("get|/healthz", "get", "/healthz", true),
            ("get|/healthz", "get", "/healthz/", false),
            ("get|/healthz", "post", "/healthz", false),
            ("get|/healthz/*", "get", "/healthz/etcd", true),
            ("get|/healthz/*", "get", "/healthz", false),
            ("get|/healthz*", "get", "/healthzz", true),
            ("get|*", "get", "/anything", true),
            ("*|/apis/*", "get", "/apis/apps/v1", true),
            ("get|/a**", "get", "/ab", true),
            ("get|/*/x", "get", "/y/x", false),
            ("*|*|*", "get", "/healthz", false),
        ] {
            assert_eq!(rule(text).allows(&Attributes::of_path(verb, path)), expected, "{text}: {path}");
        }
    }

    #[test]
    fn rules_with_missing_fields_are_parsed() {
        let read: Rule = serde_json::from_str(r#"{"verbs":["get"],"resources":null,"new":1}"#).unwrap();
        assert_eq!(read, Rule { verbs: words("get"), ..Rule::default() });
        assert_eq!(serde_json::from_str::<Rule>("{}").unwrap(), Rule::default());
    }
}
