//! Calls the conversion webhook of a CRD as an API server does.

use std::time::Duration;

use http::Method;
use restow_migrate::client::{RequestError, Server};
use restow_migrate::definition::Definition;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::error::{CliError, chain};

/// How long the webhook may take; API servers wait as long.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The versions of ConversionReview that restow speaks.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// A conversion webhook that can be called.
pub(super) struct Webhook {
    server: Server,
    path: String,
    review: &'static str,
    group: String,
}

/// Why a webhook did not convert.
#[derive(Debug, thiserror::Error)]
pub(super) enum WebhookError {
    /// It did not answer, or with something else than a review.
    #[error("the conversion webhook failed")]
    Call(#[from] RequestError),
    /// It refused the review.
    #[error("{0}")]
    Refused(String),
    /// Its answer breaks the rules that API servers enforce.
    #[error("the conversion webhook's answer is wrong: {0}")]
    Wrong(String),
}

#[derive(Deserialize)]
struct Review {
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    converted_objects: Vec<Value>,
    #[serde(default)]
    result: Outcome,
}

#[derive(Default, Deserialize)]
struct Outcome {
    #[serde(default)]
    status: String,
    #[serde(default)]
    message: String,
}

impl Webhook {
    /// The webhook of a CRD, at its own URL or at another one that leads to it.
    pub(super) fn of(definition: &Definition, url: Option<&str>) -> Result<Self, CliError> {
        let name = &definition.crd.name;
        let webhook = &definition.object["spec"]["conversion"]["webhook"];
        let config = &webhook["clientConfig"];
        let service = &config["service"];
        let Some(target) = url.or(config["url"].as_str()) else {
            let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
            let path = service["path"].as_str().unwrap_or("/");
            return Err(CliError::failed(format!(
                "the conversion webhook of {name} is a Service inside the cluster"
            ))
            .hint(format!(
                "make it reachable and name its address: kubectl -n {} port-forward service/{} 9443:{} and \
                     --webhook-url https://localhost:9443{path}",
                text("namespace"),
                text("name"),
                service["port"].as_u64().unwrap_or(443),
            )));
        };
        let wrong =
            |why: &dyn std::fmt::Display| CliError::failed(format!("the webhook's URL {target}: {why}"));
        let uri: http::Uri = target.parse().map_err(|error| wrong(&error))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let base = match (uri.scheme_str(), uri.authority()) {
            (Some("https"), Some(authority)) => format!("https://{authority}"),
            _ => return Err(wrong(&"it is not an https URL")),
        };
        let mut connection = kube::Config::new(base.parse().map_err(|error| wrong(&error))?);
        connection.root_cert = authorities(config["caBundle"].as_str())?;
        connection.read_timeout = Some(TIMEOUT);
        if let (Some(service), Some(namespace)) = (service["name"].as_str(), service["namespace"].as_str()) {
            connection.tls_server_name = Some(format!("{service}.{namespace}.svc"));
        }
        let spoken = webhook["conversionReviewVersions"].as_array().cloned().unwrap_or_default();
        let review = REVIEWS.into_iter().find(|known| spoken.iter().any(|one| one == known));
        Ok(Self {
            server: Server::connect(connection).map_err(|error| wrong(&error))?,
            path,
            review: review
                .ok_or_else(|| wrong(&"it speaks no version of ConversionReview that restow knows"))?,
            group: name.group.clone(),
        })
    }

    /// Converts objects in one review. The answer must be as API servers demand.
    pub(super) async fn convert(&self, objects: &[Value], version: &str) -> Result<Vec<Value>, WebhookError> {
        let uid = format!("{:016x}{:016x}", restow_clock::random(), restow_clock::random());
        let wanted = format!("{}/{version}", self.group);
        let review = json!({
            "apiVersion": format!("apiextensions.k8s.io/{}", self.review), "kind": "ConversionReview",
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects},
        });
        let body = review.to_string().into_bytes();
        let answer: Review = self.server.write(Method::POST, &self.path, "application/json", body).await?;
        let wrong = |why: String| WebhookError::Wrong(why);
        let response = answer.response.ok_or_else(|| wrong("it has no response".to_owned()))?;
        if response.uid != uid {
            return Err(wrong("its uid is not that of the request".to_owned()));
        }
        if response.result.status != "Success" {
            return Err(WebhookError::Refused(response.result.message));
        }
        let converted = response.converted_objects;
        if converted.len() != objects.len() {
            return Err(wrong(format!("{} objects for {}", converted.len(), objects.len())));
        }
        for (before, after) in objects.iter().zip(&converted) {
            valid(before, after, &wanted).map_err(wrong)?;
        }
        Ok(converted)
    }

    /// Converts each object; one that is refused does not affect the others.
    pub(super) async fn convert_each(
        &self,
        objects: &[Value],
        version: &str,
    ) -> Vec<Result<Value, WebhookError>> {
        if objects.is_empty() {
            return Vec::new();
        }
        if let Ok(converted) = self.convert(objects, version).await {
            return converted.into_iter().map(Ok).collect();
        }
        let mut each = Vec::new();
        for object in objects {
            let one = self.convert(std::slice::from_ref(object), version).await;
            let none = || WebhookError::Wrong("it is empty".to_owned());
            each.push(one.and_then(|mut one| one.pop().ok_or_else(none)));
        }
        each
    }
}

/// What API servers demand of a converted object.
fn valid(before: &Value, after: &Value, wanted: &str) -> Result<(), String> {
    if after["apiVersion"] != wanted {
        return Err(format!("an object has the apiVersion {}, not {wanted}", after["apiVersion"]));
    }
    if after["kind"] != before["kind"] {
        return Err(format!("an object has the kind {}, not {}", after["kind"], before["kind"]));
    }
    for field in ["name", "namespace", "uid"] {
        let (was, is) = (&before["metadata"][field], &after["metadata"][field]);
        if was != is {
            return Err(format!("metadata.{field} of an object was changed from {was} to {is}"));
        }
    }
    Ok(())
}

/// The certificates of a caBundle; none means those that the system trusts.
fn authorities(bundle: Option<&str>) -> Result<Option<Vec<Vec<u8>>>, CliError> {
    let Some(bundle) = bundle.filter(|bundle| !bundle.is_empty()) else { return Ok(None) };
    let wrong =
        |why: &dyn std::error::Error| CliError::failed(format!("the webhook's caBundle: {}", chain(why)));
    let bytes: k8s_openapi::ByteString =
        serde_json::from_value(Value::from(bundle)).map_err(|error| wrong(&error))?;
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&bytes.0).map(|one| one.map(|one| one.to_vec())).collect();
    found.map(Some).map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_an_api_server_would_refuse_is_refused() {
        let object = |version: &str, kind: &str, uid: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a", "uid": uid}});
        let before = object("e/v1", "W", "1");
        for (after, taken) in [
            (object("e/v2", "W", "1"), true),
            (object("e/v1", "W", "1"), false),
            (object("e/v2", "X", "1"), false),
            (object("e/v2", "W", "2"), false),
        ] {
            assert_eq!(valid(&before, &after, "e/v2").is_ok(), taken, "{after}");
        }
    }
}
