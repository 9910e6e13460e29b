//! Reads, finds and writes migrations and storage states.
//!
//! Requests go through `Server` instead of kube's `Api`: it bounds answers, retries a 401 after credentials were accepted, and names
//! the cause of a broken connection.

use std::time::Duration;

use http::Method;
use kube::{Resource, ResourceExt as _};
use restow_api::StorageVersionMigration;
use restow_core::resource::name::GroupResource;
use restow_core::resource::near::nearest;
use restow_migrate::client::access::Missing;
use restow_migrate::client::{RequestError, Server};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::connect::unreached;
use crate::error::CliError;
use crate::program::program;

/// A kind of object whose definition restow installs.
pub(crate) trait Object: Resource<DynamicType = ()> + DeserializeOwned {}
impl<K: Resource<DynamicType = ()> + DeserializeOwned> Object for K {}

/// How often, and how far apart, a request is sent to a server that answers 429. A server does so for a new CRD until it is
/// ready.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_secs(1);

/// Sends a request, and retries while the server answers 429.
async fn retry_if_overloaded<T>(send: impl AsyncFn() -> Result<T, RequestError>) -> Result<T, RequestError> {
    for _ in 1..TRIES {
        match send().await {
            Err(RequestError::Refused { code: 429, .. }) => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
    }
    send().await
}

/// All objects of a kind.
pub(crate) async fn list<K: Object>(server: &Server) -> Result<Vec<K>, CliError> {
    read_list(server).await.map_err(|error| refused::<K>(server, "list", &error))
}

/// All objects of a kind; none if its CRD is not installed.
pub(crate) async fn list_if_defined<K: Object>(server: &Server) -> Result<Vec<K>, CliError> {
    match read_list(server).await {
        Err(RequestError::Refused { code: 404, .. }) => Ok(Vec::new()),
        listed => listed.map_err(|error| refused::<K>(server, "list", &error)),
    }
}

async fn read_list<K: Object>(server: &Server) -> Result<Vec<K>, RequestError> {
    #[derive(Deserialize)]
    struct List<K> {
        items: Vec<K>,
    }
    let list = retry_if_overloaded(async || server.get::<List<K>>(&K::url_path(&(), None)).await).await?;
    Ok(list.items)
}

/// The migrations with these names, each once, in the given order.
pub(crate) async fn find(
    server: &Server,
    names: &[String],
) -> Result<Vec<StorageVersionMigration>, CliError> {
    let all: Vec<StorageVersionMigration> = list(server).await?;
    let mut found: Vec<StorageVersionMigration> = Vec::new();
    for typed in names {
        let migration = all.iter().find(|migration| migration.name_any() == bare(typed));
        let migration = migration.ok_or_else(|| unknown(typed, &all))?;
        if found.iter().all(|other| other.name_any() != migration.name_any()) {
            found.push(migration.clone());
        }
    }
    Ok(found)
}

/// A name without the kind that `-o name` adds in front.
pub(crate) fn bare(typed: &str) -> &str {
    typed.split_once('/').map_or(typed, |(_, name)| name)
}

/// The error for a migration that does not exist, with similar names.
fn unknown(typed: &str, all: &[StorageVersionMigration]) -> CliError {
    let others = |migration: &StorageVersionMigration| {
        let resource = &migration.spec.resource;
        (migration.name_any(), vec![resource.name(), resource.resource.clone()])
    };
    name_not_found(typed, "migration", all.iter().map(others))
}

/// The error for a name that does not exist, with similar names.
pub(crate) fn name_not_found(
    typed: &str,
    what: &str,
    names: impl Iterator<Item = (String, Vec<String>)>,
) -> CliError {
    let near = nearest(bare(typed), names);
    let meant =
        if near.is_empty() { String::new() } else { format!(" (did you mean {}?)", near.join(" or ")) };
    CliError::usage(format!("there is no {what} {typed:?}{meant}"))
        .hint(format!("to see them all, run: {} status", program()))
}

/// The name of an object with its kind, as in `kubectl -o name`.
pub(crate) fn typed_name<K: Object>(name: &str) -> String {
    format!("{}.{}/{name}", K::kind(&()).to_lowercase(), K::group(&()))
}

/// Whether the server stores a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// It stores the write.
    Persist,
    /// It only validates the write.
    DryRun,
}

impl WriteMode {
    pub(crate) fn unless(dry_run: bool) -> Self {
        if dry_run { Self::DryRun } else { Self::Persist }
    }

    fn query(self) -> &'static str {
        match self {
            Self::Persist => "",
            Self::DryRun => "?dryRun=All",
        }
    }
}

/// Patches an object; none if another client has changed it since it was read.
pub(crate) async fn patch<K: Object>(
    server: &Server,
    object: &K,
    mut change: Value,
    mode: WriteMode,
) -> Result<Option<K>, CliError> {
    change["metadata"]["uid"] = json!(object.meta().uid);
    change["metadata"]["resourceVersion"] = json!(object.meta().resource_version);
    let path = format!("{}/{}{}", K::url_path(&(), None), object.name_any(), mode.query());
    let body = change.to_string().into_bytes();
    let send =
        async || server.write(Method::PATCH, &path, "application/merge-patch+json", body.clone()).await;
    match retry_if_overloaded(send).await {
        Ok(changed) => Ok(Some(changed)),
        Err(RequestError::Refused { code: 404 | 409, .. }) => Ok(None),
        Err(error) => Err(refused::<K>(server, "patch", &error)),
    }
}

/// Creates an object.
pub(crate) async fn create<K: Object>(
    server: &Server,
    object: &Value,
    mode: WriteMode,
) -> Result<K, Refused> {
    let path = format!("{}{}", K::url_path(&(), None), mode.query());
    let body = object.to_string().into_bytes();
    let send = async || server.write(Method::POST, &path, "application/json", body.clone()).await;
    retry_if_overloaded(send).await.map_err(|error| Refused {
        for_all: error.code().is_none_or(|code| matches!(code, 401 | 403 | 404)),
        failure: refused::<K>(server, "create", &error),
    })
}

/// A write that was refused.
pub(crate) struct Refused {
    /// The error to print.
    pub(crate) failure: CliError,
    /// Whether the server would refuse other objects for the same reason.
    pub(crate) for_all: bool,
}

/// Deletes an object, but not another one with the same name.
pub(crate) async fn delete<K: Object>(server: &Server, object: &K, mode: WriteMode) -> Result<(), CliError> {
    let path = format!("{}/{}", K::url_path(&(), None), object.name_any());
    let mut options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": object.meta().uid}});
    // With a body, the server ignores the query.
    if mode == WriteMode::DryRun {
        options["dryRun"] = json!(["All"]);
    }
    let body = options.to_string().into_bytes();
    let send = async || server.write::<Value>(Method::DELETE, &path, "application/json", body.clone()).await;
    match retry_if_overloaded(send).await {
        // Another client deleted it first, and perhaps created another one.
        Ok(_) | Err(RequestError::Refused { code: 404 | 409, .. }) => Ok(()),
        Err(error) => Err(refused::<K>(server, "delete", &error)),
    }
}

/// The error for a failed request for objects of a kind, with what to do about it.
pub(crate) fn refused<K: Object>(server: &Server, verb: &'static str, error: &RequestError) -> CliError {
    match error {
        RequestError::Refused { code: 404, .. } => CliError::failed(format!(
            "{} does not serve {} of {}",
            server.name(),
            K::plural(&()),
            K::api_version(&())
        ))
        .hint(missing_definitions(program())),
        RequestError::Refused { code: 403, .. } => {
            let missing = Missing::new(verb, &GroupResource::new(K::group(&()), K::plural(&())));
            CliError::failed(format!("no permission: {missing}")).hint(Missing::grant(&[missing]))
        }
        _ => unreached(server, error),
    }
}

/// How to install the CRDs.
fn missing_definitions(program: &str) -> String {
    format!(
        "to install the controllers and the CRDs, run: {program} install --image IMAGE --apply; for only the \
        CRDs: {program} install --crds --apply"
    )
}

#[cfg(test)]
mod tests {
    use restow_api::StorageState;

    use super::*;

    #[test]
    fn names_are_written_and_read_as_kubectl_does() {
        let name = typed_name::<StorageVersionMigration>("secrets-x7k2p");
        assert_eq!(name, "storageversionmigration.migration.k8s.io/secrets-x7k2p");
        assert_eq!((bare(&name), bare("svm/a"), bare("a")), ("secrets-x7k2p", "a", "a"));
        assert_eq!(typed_name::<StorageState>("secrets"), "storagestate.migration.k8s.io/secrets");
    }
}
