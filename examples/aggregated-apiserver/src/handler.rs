//! Handles a request: authentication, authorization, the gate, and the verb.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use restow_storageversion::Gate;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::answer::{Answer, json_answer, text_answer};
use crate::delegation::Delegation;
use crate::discovery;
use crate::error::ApiError;
use crate::front_proxy::FrontProxy;
use crate::representation::Representation;
use crate::request::{Options, ResourcePath, Target, Verb, target};
use crate::rules::Preconditions;
use crate::ship::{Ship, Version};
use crate::ships::Ships;
use crate::watching::watch;

/// The maximum size of a request body, as in Kubernetes.
const MAX_BODY_BYTES: usize = 3 << 20;
/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const MERGE_PATCH: &str = "application/merge-patch+json";

/// What all requests need.
#[derive(Clone)]
pub struct Handler {
    /// Where ships are stored.
    pub ships: Ships,
    /// The version they are stored in.
    pub storage: Version,
    /// The gate, which lets writes in when that version is registered.
    pub gate: Gate,
    /// Authenticates and authorizes users.
    pub delegation: Delegation,
    /// Ends watches.
    pub stop: CancellationToken,
}

impl Handler {
    /// Answers a request. `front_proxy` is set if the request came from it.
    pub async fn answer(&self, front_proxy: Option<&FrontProxy>, request: Request<Incoming>) -> Answer {
        match tokio::time::timeout(REQUEST_TIMEOUT, self.route(front_proxy, request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(failure)) => failure.into(),
            Err(_) => ApiError::timeout().into(),
        }
    }

    async fn route(
        &self,
        front_proxy: Option<&FrontProxy>,
        request: Request<Incoming>,
    ) -> Result<Answer, ApiError> {
        let target = target(request.uri().path());
        match target {
            Some(Target::Alive) => return Ok(text_answer(StatusCode::OK, "ok")),
            Some(Target::Ready) => return Ok(self.ready()),
            _ => {}
        }
        let user = self.delegation.user(front_proxy, request.headers()).await?;
        match target {
            Some(Target::Discovery(document)) if request.method() == Method::GET => {
                Ok(json_answer(StatusCode::OK, &discovery::document(document, self.storage)))
            }
            Some(Target::Ships(place)) => {
                let options = Options::read(request.uri().query().unwrap_or_default())?;
                let verb =
                    Verb::of(request.method(), &place, &options).ok_or_else(ApiError::method_not_allowed)?;
                self.delegation.authorize(&user, verb, &place).await?;
                self.behind_gate(verb, place, options, request).await
            }
            Some(_) => Err(ApiError::method_not_allowed()),
            None => Err(ApiError::no_such_path()),
        }
    }

    fn ready(&self) -> Answer {
        match self.gate.readiness().check() {
            Ok(()) => text_answer(StatusCode::OK, "ok"),
            Err(why) => text_answer(StatusCode::INTERNAL_SERVER_ERROR, &format!("not ready: {why}\n")),
        }
    }

    /// Handles a request behind the layer of the gate.
    async fn behind_gate(
        &self,
        verb: Verb,
        place: ResourcePath,
        options: Options,
        request: Request<Incoming>,
    ) -> Result<Answer, ApiError> {
        let handle = service_fn(async |request| {
            let done = self.handle(verb, &place, &options, request).await;
            Ok::<_, Infallible>(done.unwrap_or_else(Answer::from))
        });
        let Ok(answer) = self.gate.layer().layer(handle).oneshot(request).await;
        Ok(answer)
    }

    async fn handle(
        &self,
        verb: Verb,
        place: &ResourcePath,
        options: &Options,
        request: Request<Incoming>,
    ) -> Result<Answer, ApiError> {
        let representation = Representation::of(request.headers(), place.version);
        let (namespace, name) =
            (place.namespace.as_deref().unwrap_or_default(), place.name.as_deref().unwrap_or_default());
        let dry_run = options.dry_run;
        let mut code = StatusCode::OK;
        let ship = match verb {
            Verb::List => {
                let page = self.ships.list(&options.list(place.namespace.clone())).await?;
                return Ok(json_answer(code, &representation.page(&page)?));
            }
            Verb::Watch => {
                return watch(
                    &self.ships,
                    place.namespace.clone(),
                    representation,
                    options,
                    self.stop.clone(),
                )
                .await;
            }
            Verb::Get => self.ships.get(namespace, name).await?,
            Verb::Create => {
                code = StatusCode::CREATED;
                let ship = read(body(request).await?, place.version)?;
                self.ships.create(ship, namespace, dry_run).await?
            }
            Verb::Update => {
                let wanted = read(body(request).await?, place.version)?;
                self.ships.update(namespace, name, dry_run, |_| Ok(wanted.clone())).await?
            }
            Verb::Patch => {
                let patch = patch(request).await?;
                let patched = |current: &Ship| merged(current, &patch, place.version);
                self.ships.update(namespace, name, dry_run, patched).await?
            }
            Verb::Delete => {
                let wanted = preconditions(&body_bytes(request).await?)?;
                self.ships.delete(namespace, name, dry_run, &wanted).await?
            }
        };
        Ok(json_answer(code, &representation.object(&ship)?))
    }
}

/// Applies a merge patch in the version of the request.
fn merged(current: &Ship, patch: &Value, version: Version) -> Result<Ship, ApiError> {
    let mut object = current.encode(version).map_err(ApiError::internal)?;
    json_patch::merge(&mut object, patch);
    read(object, version)
}

fn read(object: Value, version: Version) -> Result<Ship, ApiError> {
    let (written_in, ship) = Ship::decode(object)?;
    if written_in != version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            written_in.group_version(),
            version.group_version()
        )));
    }
    Ok(ship)
}

async fn patch(request: Request<Incoming>) -> Result<Value, ApiError> {
    if media_type(request.headers()) != MERGE_PATCH {
        return Err(ApiError::unsupported_media_type(MERGE_PATCH));
    }
    let patch = json(&body_bytes(request).await?)?;
    if patch.is_object() {
        Ok(patch)
    } else {
        Err(ApiError::bad_request("a merge patch has to be an object"))
    }
}

async fn body(request: Request<Incoming>) -> Result<Value, ApiError> {
    if !matches!(media_type(request.headers()), "application/json" | "") {
        return Err(ApiError::unsupported_media_type("application/json"));
    }
    json(&body_bytes(request).await?)
}

fn media_type(headers: &HeaderMap) -> &str {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.split(';').next().unwrap_or_default().trim()
}

async fn body_bytes(request: Request<Incoming>) -> Result<Bytes, ApiError> {
    match Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::too_large(MAX_BODY_BYTES)),
        Err(error) => Err(ApiError::bad_request(format!("the body is truncated: {error}"))),
    }
}

fn json(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::bad_request(format!("the body is not JSON: {error}")))
}

/// The preconditions in the DeleteOptions of the body.
fn preconditions(body: &[u8]) -> Result<Preconditions, ApiError> {
    #[derive(Default, Deserialize)]
    struct DeleteOptions {
        preconditions: Option<Wanted>,
        #[serde(default, rename = "dryRun")]
        dry_run: Option<Vec<String>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wanted {
        uid: Option<String>,
        resource_version: Option<String>,
    }
    if body.is_empty() {
        return Ok(Preconditions::default());
    }
    let options: DeleteOptions = serde_json::from_value(json(body)?)
        .map_err(|error| ApiError::bad_request(format!("the body is not a DeleteOptions: {error}")))?;
    if options.dry_run.is_some_and(|stages| !stages.is_empty()) {
        return Err(ApiError::bad_request("this server supports dryRun only in the query"));
    }
    let wanted = options
        .preconditions
        .map(|wanted| Preconditions { uid: wanted.uid, resource_version: wanted.resource_version });
    Ok(wanted.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_is_merged_in_the_version_of_the_request() {
        let stored = json!({
            "apiVersion": "fleet.example.com/v1", "kind": "Ship", "metadata": {"name": "a"},
            "spec": {"port": "Kiel", "tons": 7},
        });
        let (_, ship) = Ship::decode(stored).unwrap();
        let moved = merged(&ship, &json!({"spec": {"homePort": "Oslo"}}), Version::V2).unwrap();
        assert_eq!((moved.spec.home_port.as_str(), moved.spec.tons), ("Oslo", 7));
        assert!(merged(&ship, &json!({"spec": {"homePort": "Oslo"}}), Version::V1).is_err());
        assert!(merged(&ship, &json!({"apiVersion": "fleet.example.com/v2"}), Version::V1).is_err());
        assert!(merged(&ship, &json!({"kind": null}), Version::V1).is_err());
        assert_eq!(merged(&ship, &json!({}), Version::V2).unwrap(), ship);
    }

    #[test]
    fn preconditions_are_read_from_delete_options() {
        let read = |body: &str| preconditions(body.as_bytes());
        assert_eq!(read("").unwrap(), Preconditions::default());
        assert_eq!(read(r#"{"preconditions":null}"#).unwrap(), Preconditions::default());
        let wanted = read(r#"{"kind":"DeleteOptions","preconditions":{"uid":"u","resourceVersion":"5"}}"#);
        let expected = Preconditions { uid: Some("u".to_owned()), resource_version: Some("5".to_owned()) };
        assert_eq!(wanted.unwrap(), expected);
        for refused in ["x", "[]", r#"{"dryRun":["All"]}"#] {
            assert!(read(refused).is_err(), "{refused}");
        }
    }
}
