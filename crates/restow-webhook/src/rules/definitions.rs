//! The CRDs that rules are for. Only these are read as a whole: all CRDs of a cluster can be many megabytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use restow_lease::request::in_words;

use super::plan::Definition;
use super::watches::CrdMetadata;

/// The CRDs of the groups that rules are for.
pub(super) struct Definitions {
    api: Api<CustomResourceDefinition>,
    /// The names of the CRDs that are followed; all if none.
    named: Option<Vec<String>>,
    known: BTreeMap<String, CustomResourceDefinition>,
    /// Why CRDs could not be read, by their names.
    problems: BTreeMap<String, String>,
}

/// The name, uid and generation of a CRD.
pub(super) type Revision = (String, Option<String>, Option<i64>);

pub(super) fn revision(metadata: &CrdMetadata) -> Revision {
    let metadata = &metadata.metadata;
    (metadata.name.clone().unwrap_or_default(), metadata.uid.clone(), metadata.generation)
}

/// The CRD that API servers serve, of several with the same kind: the others' names are not accepted.
fn preferred<'a>(
    definitions: impl Iterator<Item = &'a CustomResourceDefinition>,
) -> Option<&'a CustomResourceDefinition> {
    definitions.min_by_key(|definition| {
        let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let names = conditions.filter(|condition| condition.type_ == "NamesAccepted");
        names.map(|condition| condition.status.as_str()).any(|status| status == "False")
    })
}

impl Definitions {
    pub(super) fn new(client: Client, named: Option<Vec<String>>) -> Self {
        Self { api: Api::all(client), named, known: BTreeMap::new(), problems: BTreeMap::new() }
    }

    /// Reads those of the groups that have changed. Returns whether all could be read.
    pub(super) async fn refresh(&mut self, all: &[Arc<CrdMetadata>], groups: &BTreeSet<String>) -> bool {
        let wanted: BTreeMap<_, _> = all
            .iter()
            .map(|metadata| revision(metadata))
            .filter(|(name, ..)| name.split_once('.').is_some_and(|(_, group)| groups.contains(group)))
            .map(|(name, uid, generation)| (name, (uid, generation)))
            .collect();
        self.known.retain(|name, known| {
            let current = (known.metadata.uid.clone(), known.metadata.generation);
            wanted.get(name) == Some(&current)
        });
        self.problems.clear();
        for name in wanted.keys().filter(|name| !self.known.contains_key(*name)).cloned().collect::<Vec<_>>()
        {
            match self.api.get_opt(&name).await {
                Ok(Some(definition)) => drop(self.known.insert(name, definition)),
                Ok(None) => {}
                Err(error) => {
                    let error = in_words(&error);
                    tracing::warn!(crd = name, "could not read a CRD: {error}");
                    self.problems.insert(name, error);
                }
            }
        }
        self.problems.is_empty()
    }

    /// The CRD of a kind. One that could not be read may be the one, and a named one that does not exist, too.
    pub(super) fn get(&self, group: &str, kind: &str) -> Definition<'_> {
        let is_of = |definition: &&CustomResourceDefinition| {
            (definition.spec.group.as_str(), definition.spec.names.kind.as_str()) == (group, kind)
        };
        let of_group = |name: &str| name.split_once('.').is_some_and(|(_, found)| found == group);
        match preferred(self.known.values().filter(is_of)) {
            Some(definition) => Definition::Found(definition),
            None => match self.problems.iter().find(|(name, _)| of_group(name)) {
                Some((_, problem)) => Definition::Unreadable(problem),
                None if self.may_come(group) => Definition::Absent,
                None => Definition::NotFollowed,
            },
        }
    }

    /// Whether a CRD of a group that does not exist would be followed.
    fn may_come(&self, group: &str) -> bool {
        let of_group = |name: &&String| name.split_once('.').is_some_and(|(_, found)| found == group);
        match &self.named {
            None => true,
            Some(named) => named.iter().filter(of_group).any(|name| !self.known.contains_key(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(plural: &str, names_accepted: Option<&str>) -> CustomResourceDefinition {
        let conditions: Vec<_> = names_accepted
            .map(|status| json!({"type": "NamesAccepted", "status": status}))
            .into_iter()
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": "Widget"},
                "versions": [],
            },
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn of_two_crds_for_one_kind_the_accepted_one_counts() {
        for (states, expected) in [
            (&[("a", Some("False")), ("b", Some("True"))][..], Some("b.example.com")),
            (&[("a", Some("False")), ("b", None)], Some("b.example.com")),
            (&[("a", Some("True")), ("b", Some("False"))], Some("a.example.com")),
            (&[("a", Some("False"))], Some("a.example.com")),
            (&[], None),
        ] {
            let crds: Vec<_> = states.iter().map(|(plural, status)| crd(plural, *status)).collect();
            let found = preferred(crds.iter()).and_then(|crd| crd.metadata.name.as_deref());
            assert_eq!(found, expected, "{states:?}");
        }
    }

    #[tokio::test]
    async fn a_named_crd_that_does_not_exist_may_be_the_one_and_others_are_not_followed() {
        let config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let known = BTreeMap::from([("a.example.com".to_owned(), crd("a", None))]);
        for (named, expected) in [
            (None, "Absent"),
            (Some(vec!["a.example.com"]), "NotFollowed"),
            (Some(vec!["a.example.com", "b.example.com"]), "Absent"),
            (Some(vec!["b.example.org"]), "NotFollowed"),
        ] {
            let named = named.map(|names| names.into_iter().map(str::to_owned).collect());
            let definitions = Definitions { known: known.clone(), ..Definitions::new(client.clone(), named) };
            assert!(matches!(definitions.get("example.com", "Widget"), Definition::Found(_)));
            assert_eq!(format!("{:?}", definitions.get("example.com", "Gadget")), expected);
        }
    }
}
