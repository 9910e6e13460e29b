//! Checks a conversion through the API server: objects are read in every served version, and sent back as a dry run.

use http::Method;
use restow_core::resource::inventory::Resource;
use restow_core::resource::name::GroupVersion;
use restow_migrate::client::{RequestError, Server};
use serde_json::Value;

use super::live::{self, Live};
use super::pairs::{Pairs, differences};
use crate::connect::unreached;
use crate::error::CliError;

/// Checks all live objects. Without a webhook, the storage version shows what another version would leave of an object.
pub(super) async fn check(
    pairs: &mut Pairs,
    server: &Server,
    resource: &Resource,
    mut objects: Live<'_>,
    only_api_version: bool,
) -> Result<(), CliError> {
    let Some(stored) = resource.endpoint() else { return Ok(()) };
    let others: Vec<&GroupVersion> = resource.served.iter().filter(|version| *version != stored).collect();
    for (name, served) in resource.crd.iter().flat_map(|crd| &crd.versions) {
        if !served {
            pairs.not_checked(format!("{name}: it is not served"));
        }
    }
    while let Some(page) = objects.next().await? {
        for object in page {
            for other in &others {
                let path = path(resource, other, &object);
                one(pairs, server, stored, other, &path, &object, only_api_version).await?;
            }
        }
    }
    Ok(())
}

fn path(resource: &Resource, version: &GroupVersion, object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let place = match text("namespace") {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("{}{place}/{}/{}", version.path(), resource.name.resource, text("name"))
}

/// Checks one object between the version it is stored in and another one.
async fn one(
    pairs: &mut Pairs,
    server: &Server,
    stored: &GroupVersion,
    other: &GroupVersion,
    path: &str,
    object: &Value,
    only_api_version: bool,
) -> Result<(), CliError> {
    let name = live::name(object);
    let (from, to) = (&stored.version, &other.version);
    pairs.counted(from, to, 1);
    let read: Value = match server.get(path).await {
        Ok(read) => read,
        // It was deleted since it was listed.
        Err(error) if error.code() == Some(404) => return Ok(()),
        Err(error) => return refused(pairs, server, (from, to), &name, error),
    };
    if read["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
        // Somebody has written it since: a difference would not be the conversion's.
        return Ok(());
    }
    if only_api_version {
        let mut back = read.clone();
        back["apiVersion"] = object["apiVersion"].clone();
        pairs.lost(from, to, &name, differences(object, &back));
    }
    pairs.counted(to, from, 1);
    let body = read.to_string().into_bytes();
    let write: Result<Value, _> =
        server.write(Method::PUT, &format!("{path}?dryRun=All"), "application/json", body).await;
    match write {
        Ok(after) => pairs.lost(to, from, &name, differences(&content(&read), &content(&after))),
        Err(error) => match error.code() {
            Some(403) => pairs.not_checked(format!("{to} to {from}: {error}")),
            Some(404 | 409) => {}
            _ => return refused(pairs, server, (to, from), &name, error),
        },
    }
    Ok(())
}

/// What a write may not change; the server itself counts and records writes.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
    }
    object
}

/// An answer about the object is reported; a server that does not answer ends the check.
fn refused(
    pairs: &mut Pairs,
    server: &Server,
    (from, to): (&str, &str),
    name: &str,
    error: RequestError,
) -> Result<(), CliError> {
    match &error {
        RequestError::Refused { code: 400 | 422 | 500, message } => {
            pairs.refused(from, to, name, message);
            Ok(())
        }
        _ => Err(unreached(server, &error)),
    }
}
