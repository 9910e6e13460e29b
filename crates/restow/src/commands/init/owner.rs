//! The owner of the migrations that `restow init` creates: they are deleted with it.

use restow_core::resource::inventory::{Resource, find};
use restow_core::resource::name::GroupVersion;
use restow_migrate::client::RequestError;
use restow_migrate::client::access::Missing;
use restow_migrate::cluster::{Cluster, Inventory};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::connect::unreached;
use crate::error::CliError;

/// The ClusterRole that `restow install` creates.
const INSTALLED: &str = "restow";

/// The requested owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// No owner.
    Nobody,
    /// This object.
    Named {
        /// A kind, or another name of a resource.
        kind: String,
        /// The object.
        name: String,
    },
}

impl std::str::FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nobody);
        }
        let wrong = || "give KIND/NAME, such as clusterrole/restow, or none".to_owned();
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        let plain = |text: &str| {
            let fits = |letter: char| letter.is_ascii_alphanumeric() || "-._:".contains(letter);
            !text.is_empty() && text.chars().all(fits)
        };
        let owner = Self::Named { kind: kind.to_owned(), name: name.to_owned() };
        if plain(kind) && plain(name) { Ok(owner) } else { Err(wrong()) }
    }
}

/// The reference to the owner; by default the ClusterRole that `restow install` creates, if it exists.
pub(crate) async fn reference(
    cluster: &Cluster,
    inventory: &Inventory,
    owner: Option<&Owner>,
) -> Result<Option<Value>, CliError> {
    match owner {
        Some(Owner::Nobody) => Ok(None),
        Some(Owner::Named { kind, name }) => {
            let resource = find(&inventory.resources, kind).map_err(CliError::usage)?;
            let version = owning_version(resource)?;
            match look_up(cluster, resource, version, name).await {
                Ok(reference) => Ok(Some(reference)),
                Err(error) => Err(not_found(cluster, resource, name, &error)),
            }
        }
        None => {
            let role = inventory.resources.iter().find(|resource| {
                resource.name.resource == "clusterroles" && resource.name.group == "rbac.authorization.k8s.io"
            });
            let Some((role, version)) = role.and_then(|role| Some((role, role.served.first()?))) else {
                return Ok(None);
            };
            match look_up(cluster, role, version, INSTALLED).await {
                Ok(reference) => Ok(Some(reference)),
                // It was not requested.
                Err(error) if error.is_final() => Ok(None),
                Err(error) => Err(unreached(cluster.server(), &error)),
            }
        }
    }
}

/// The version for the reference, if the resource can own cluster-scoped objects.
fn owning_version(resource: &Resource) -> Result<&GroupVersion, CliError> {
    let version = resource.served.first().filter(|_| !resource.namespaced);
    version.ok_or_else(|| {
        CliError::usage(format!("a {} is namespaced, and migrations are not", resource.kind))
            .hint("choose a cluster-scoped owner, such as clusterrole/restow")
    })
}

async fn look_up(
    cluster: &Cluster,
    resource: &Resource,
    version: &GroupVersion,
    name: &str,
) -> Result<Value, RequestError> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: String,
    }
    let path = format!("{}/{}/{name}", version.path(), resource.name.resource);
    let object: Object = cluster.server().get(&path).await?;
    Ok(json!({
        "apiVersion": version.to_string(), "kind": resource.kind, "name": name, "uid": object.metadata.uid,
    }))
}

fn not_found(cluster: &Cluster, resource: &Resource, name: &str, error: &RequestError) -> CliError {
    match error.code() {
        Some(404) => CliError::usage(format!("there is no {} {name:?} to own the migrations", resource.kind)),
        Some(403) => {
            let missing = Missing::new("get", &resource.name);
            CliError::failed(format!("no permission: {missing}")).hint(Missing::grant(&[missing]))
        }
        _ => unreached(cluster.server(), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_read_or_refused() {
        let named = |kind: &str, name: &str| Owner::Named { kind: kind.to_owned(), name: name.to_owned() };
        for (text, expected) in [
            ("none", Some(Owner::Nobody)),
            ("clusterrole/restow", Some(named("clusterrole", "restow"))),
            (
                "clusterroles.rbac.authorization.k8s.io/system:a",
                Some(named("clusterroles.rbac.authorization.k8s.io", "system:a")),
            ),
            ("restow", None),
            ("clusterrole/", None),
            ("clusterrole/a/b", None),
            ("clusterrole/a?b", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }
}
