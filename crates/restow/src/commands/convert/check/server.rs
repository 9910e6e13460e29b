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

/// How often an object that is written at the same time is read again.
const TRIES: u32 = 5;

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
            pairs.not_served(name.clone());
        }
    }
    while let Some(page) = objects.next().await? {
        for mut object in page {
            for other in &others {
                let check = Check { server, resource, stored, other, only_api_version };
                check.object(pairs, &mut object).await?;
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

/// A check between the version that objects are stored in and another one.
struct Check<'a> {
    server: &'a Server,
    resource: &'a Resource,
    stored: &'a GroupVersion,
    other: &'a GroupVersion,
    only_api_version: bool,
}

/// What became of a try.
enum Tried {
    /// The object was checked.
    Done,
    /// The answer may be about another state of the object than was read before.
    Moved,
}

impl Check<'_> {
    /// Checks one object. What was written or deleted at the same time is read again: a difference would not be the
    /// conversion's.
    async fn object(&self, pairs: &mut Pairs, object: &mut Value) -> Result<(), CliError> {
        for _ in 0..TRIES {
            if let Tried::Done = self.once(pairs, object).await? {
                return Ok(());
            }
            match self.server.get(&path(self.resource, self.stored, object)).await {
                Ok(read) => *object = read,
                Err(error) if error.code() == Some(404) => return Ok(()),
                Err(error) => return Err(unreached(self.server, &error)),
            }
        }
        let (from, to) = (&self.stored.version, &self.other.version);
        let name = live::name(object);
        pairs.not_checked(format!(
            "{name}, {from} to {to}: it was written, or could not be found, whenever it was read"
        ));
        Ok(())
    }

    async fn once(&self, pairs: &mut Pairs, object: &Value) -> Result<Tried, CliError> {
        let (server, name) = (self.server, live::name(object));
        let (from, to) = (&self.stored.version, &self.other.version);
        let path = path(self.resource, self.other, object);
        let read: Value = match server.get(&path).await {
            Ok(read) => read,
            Err(error) if error.code() == Some(404) => return Ok(Tried::Moved),
            Err(error) => {
                pairs.counted(from, to, 1);
                return refused(pairs, server, (from, to), &name, error).map(|()| Tried::Done);
            }
        };
        let identity = |object: &Value| {
            (object["metadata"]["uid"].clone(), object["metadata"]["resourceVersion"].clone())
        };
        if identity(&read) != identity(object) {
            return Ok(Tried::Moved);
        }
        let body = read.to_string().into_bytes();
        let write: Result<Value, _> =
            server.write(Method::PUT, &format!("{path}?dryRun=All"), "application/json", body).await;
        if let Err(error) = &write
            && matches!(error.code(), Some(404 | 409))
        {
            return Ok(Tried::Moved);
        }
        pairs.counted(from, to, 1);
        if self.only_api_version {
            let mut back = read.clone();
            back["apiVersion"] = object["apiVersion"].clone();
            pairs.lost(from, to, &name, differences(object, &back));
        }
        match write {
            Ok(after) => {
                pairs.counted(to, from, 1);
                pairs.lost(to, from, &name, differences(&content(&read), &content(&after)));
            }
            Err(error) if error.code() == Some(403) => {
                pairs.not_checked(format!("{to} to {from}: {error}"));
            }
            Err(error) => {
                pairs.counted(to, from, 1);
                refused(pairs, server, (to, from), &name, error)?;
            }
        }
        Ok(Tried::Done)
    }
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
