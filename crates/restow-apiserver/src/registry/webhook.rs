//! Calls conversion webhooks.

mod review;

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::Body;
use serde_json::Value;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::http::status::StatusError;
use crate::registry::conversion::Converter;
use crate::registry::custom_resource::ServedDefinition;
use crate::registry::definition::Conversion;
use review::{Review, ReviewVersion};

/// The timeout of a call, as in kube-apiserver.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// How many clients are cached.
const KEPT: usize = 64;
/// How many bytes a response may have, in addition to four times those of the request: conversion may grow objects, but
/// not without bound.
const MOST: usize = 16 * 1024 * 1024;
/// How much of a malformed response is shown.
const SHOWN: usize = 200;

/// Calls conversion webhooks at the URLs of definitions.
#[derive(Default)]
pub(crate) struct Webhooks {
    clients: Mutex<HashMap<Address, kube::Client>>,
}

/// The URL of a webhook, and its CA bundle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Address {
    url: String,
    authority: String,
}

impl Converter for Webhooks {
    fn convert<'a>(
        &'a self,
        definition: &'a ServedDefinition,
        objects: Vec<Value>,
        desired: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, StatusError>> {
        Box::pin(async move {
            let Conversion::Webhook { client_config, review_versions } = &definition.definition.conversion
            else {
                return Err(StatusError::plain("the CustomResourceDefinition has no conversion webhook"));
            };
            let version = ReviewVersion::first_of(review_versions)
                .ok_or_else(|| StatusError::plain("no supported conversion review versions"))?;
            let uid = crate::object::uid::uid();
            let review = Review::new(version, &uid, desired, objects);
            let answer = match address(client_config) {
                Ok(address) => self.ask(&address, &review.request()).await,
                Err(error) => Err(error),
            };
            answer.and_then(|answer| review.converted(answer)).map_err(|error| review.failure(error))
        })
    }
}

impl Webhooks {
    /// Sends a review and returns the response.
    async fn ask(&self, address: &Address, review: &Value) -> Result<Value, review::WebhookError> {
        let url: Uri = address.url.parse().map_err(|error| failed(&address.url, &error))?;
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let path = format!("{path}?timeout={}s", WEBHOOK_TIMEOUT.as_secs());
        let shown = format!("{}?timeout={}s", address.url, WEBHOOK_TIMEOUT.as_secs());
        let client = self.client(address, &url)?;
        let review = review.to_string().into_bytes();
        let most = MOST + 4 * review.len();
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(Body::from(review))
            .map_err(|error| failed(&shown, &error))?;
        let exchange = async {
            let response = client.send(request).await.map_err(|error| match error {
                kube::Error::Service(error) => failed(&shown, &*error),
                other => failed(&shown, &other),
            })?;
            let status = response.status();
            let bytes = Limited::new(response.into_body(), most).collect().await;
            let bytes = bytes.map_err(|error| match error.downcast::<LengthLimitError>() {
                Ok(_) => {
                    review::WebhookError::call(format!("the webhook's answer has more than {most} bytes"))
                }
                Err(error) => failed(&shown, &*error),
            })?;
            Ok((status, bytes.to_bytes()))
        };
        let late = || review::WebhookError::call(format!("Post \"{shown}\": context deadline exceeded"));
        let (status, bytes) = tokio::time::timeout(WEBHOOK_TIMEOUT, exchange).await.map_err(|_| late())??;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&bytes);
            let text: String = text.trim().chars().take(SHOWN).collect();
            return Err(review::WebhookError::call(format!("the webhook answered {status}: {text}")));
        }
        let unread =
            |error| review::WebhookError::call(format!("the webhook's answer cannot be read: {error}"));
        serde_json::from_slice(&bytes).map_err(unread)
    }

    /// A cached client of a webhook.
    fn client(&self, address: &Address, url: &Uri) -> Result<kube::Client, review::WebhookError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(address) {
            return Ok(client.clone());
        }
        let host = url.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let root = format!("https://{host}").parse::<Uri>().map_err(|error| failed(&address.url, &error))?;
        let mut config = kube::Config::new(root);
        config.root_cert = authorities(&address.authority)?;
        config.read_timeout = Some(WEBHOOK_TIMEOUT);
        config.write_timeout = Some(WEBHOOK_TIMEOUT);
        // Each call is sent once: the caller's client retries.
        config.default_retry = false;
        let client = kube::Client::try_from(config).map_err(|error| failed(&address.url, &error))?;
        if clients.len() >= KEPT {
            clients.clear();
        }
        clients.insert(address.clone(), client.clone());
        Ok(client)
    }
}

/// The address of a webhook.
fn address(config: &Value) -> Result<Address, review::WebhookError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(url) = config["url"].as_str() {
        return Ok(Address { url: url.to_owned(), authority: text(&config["caBundle"]) });
    }
    let (namespace, name) = (text(&config["service"]["namespace"]), text(&config["service"]["name"]));
    Err(review::WebhookError::call(format!(
        "the service {namespace}/{name} is not resolved by this server, which is not part of a cluster's network: \
         give clientConfig.url"
    )))
}

/// The certificates of a CA bundle; none for those of the system.
fn authorities(bundle: &str) -> Result<Option<Vec<Vec<u8>>>, review::WebhookError> {
    if bundle.is_empty() {
        return Ok(None);
    }
    let wrong = || {
        review::WebhookError::call(
            "unable to load root certificates: unable to parse bytes as PEM block".to_owned(),
        )
    };
    let pem = STANDARD.decode(bundle).map_err(|_| wrong())?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates: Vec<Vec<u8>> = read.map_err(|_| wrong())?.iter().map(|one| one.to_vec()).collect();
    if certificates.is_empty() { Err(wrong()) } else { Ok(Some(certificates)) }
}

/// The error of a failed call, with all its causes.
fn failed(url: &str, error: &dyn Error) -> review::WebhookError {
    let mut parts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !parts.last().is_some_and(|last| last.contains(&text)) {
            parts.push(text);
        }
        next = cause.source();
    }
    review::WebhookError::call(format!("Post \"{url}\": {}", parts.join(": ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_webhook_is_called_at_its_url_or_service() {
        let found = address(&json!({"url": "https://a.example/x", "caBundle": "Yg=="})).unwrap();
        assert_eq!((found.url.as_str(), found.authority.as_str()), ("https://a.example/x", "Yg=="));
        let refused = address(&json!({"service": {"namespace": "x", "name": "y"}})).unwrap_err();
        assert!(refused.to_string().contains("the service x/y"), "{refused}");
    }

    #[test]
    fn ca_bundles_without_a_certificate_are_refused() {
        assert_eq!(authorities("").unwrap(), None);
        for bundle in ["!", "", "bm90aGluZw=="].into_iter().filter(|bundle| !bundle.is_empty()) {
            assert!(authorities(bundle).is_err(), "{bundle}");
        }
    }
}
