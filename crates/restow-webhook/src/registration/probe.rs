//! Sends the webhook a review, as an API server would: over TLS, trusting only what the CRD would trust.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio_rustls::rustls::{self, ClientConfig};

use super::endpoint::Endpoint;
use crate::certificates::{X509Error, provider, roots};

/// How long the webhook may take for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Why the webhook did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// There is no connection.
    #[error("could not connect to {0}")]
    Connect(String, #[source] io::Error),
    /// The host is no name that a certificate could have.
    #[error("{0} is no valid host name")]
    Name(String, #[source] InvalidDnsNameError),
    /// The certificates to trust cannot be read.
    #[error("the certificate authorities to trust cannot be read")]
    Bundle(#[from] X509Error),
    /// The TLS settings are wrong.
    #[error("could not set up TLS")]
    Tls(#[from] rustls::Error),
    /// The server's certificate is not accepted.
    #[error("the TLS handshake failed")]
    Handshake(#[source] io::Error),
    /// The request failed.
    #[error("the request failed")]
    Http(#[from] hyper::Error),
    /// The request could not be made.
    #[error("the request could not be made")]
    Request(#[from] http::Error),
    /// The answer could not be read.
    #[error("the answer could not be read: {0}")]
    Body(String),
    /// The answer has another status than 200.
    #[error("it answered with the status {0}")]
    Status(StatusCode),
    /// The answer is no ConversionReview for the one that was sent.
    #[error("the answer is not a ConversionReview for the probe")]
    NotAReview,
    /// The review failed.
    #[error("it could not convert the probe: {0}")]
    Failed(String),
    /// There was no answer in time.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// A review for a CRD: one object into another version, or none if there is no object.
pub fn review(crd: &CustomResourceDefinition, sample: Option<&Value>) -> Value {
    let from =
        sample.and_then(|object| object["apiVersion"].as_str()).and_then(|text| text.rsplit('/').next());
    let versions = crd.spec.versions.iter().map(|version| version.name.as_str());
    let to = versions.clone().find(|version| Some(*version) != from).or_else(|| versions.clone().next());
    let objects: Vec<&Value> = sample.into_iter().collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {
            "uid": format!("restow-probe-{:016x}", restow_clock::random()),
            "desiredAPIVersion": format!("{}/{}", crd.spec.group, to.unwrap_or_default()),
            "objects": objects,
        },
    })
}

/// Sends a review to the webhook, which must convert it.
///
/// # Errors
/// When it does not.
pub async fn probe(endpoint: &Endpoint, bundle: &str, review: &Value) -> Result<(), ProbeError> {
    let answer = async {
        let answer = post(endpoint, bundle, review.to_string()).await?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|_| ProbeError::NotAReview)?;
        judge(review, &answer)
    };
    tokio::time::timeout(TIMEOUT, answer).await.unwrap_or(Err(ProbeError::Timeout))
}

/// Whether an answer says that the review was converted.
fn judge(review: &Value, answer: &Value) -> Result<(), ProbeError> {
    let response = &answer["response"];
    if response["uid"] != review["request"]["uid"] {
        return Err(ProbeError::NotAReview);
    }
    if response["result"]["status"] != "Success" {
        let message = response["result"]["message"].as_str().unwrap_or("it gave no reason");
        return Err(ProbeError::Failed(message.to_owned()));
    }
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    if count(&response["convertedObjects"]) != count(&review["request"]["objects"]) {
        return Err(ProbeError::NotAReview);
    }
    Ok(())
}

async fn post(endpoint: &Endpoint, bundle: &str, body: String) -> Result<Bytes, ProbeError> {
    let host = endpoint.host();
    let address = format!("{host}:{}", endpoint.port());
    let stream = TcpStream::connect((host.as_str(), endpoint.port())).await;
    let stream = stream.map_err(|error| ProbeError::Connect(address.clone(), error))?;
    let name = ServerName::try_from(host.clone()).map_err(|error| ProbeError::Name(host, error))?;
    let stream = connector(bundle)?.connect(name, stream).await.map_err(ProbeError::Handshake)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post(endpoint.path())
        .header(header::HOST, address)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| ProbeError::Body(error.to_string()))?.to_bytes();
        if status == StatusCode::OK { Ok(body) } else { Err(ProbeError::Status(status)) }
    };
    tokio::select! {
        answer = answer => answer,
        // It must be polled for the answer to come; the answer is ready before it ends.
        Err(error) = connection => Err(error.into()),
    }
}

fn connector(bundle: &str) -> Result<TlsConnector, ProbeError> {
    let roots = roots(bundle.as_bytes())?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_success_for_this_review_counts() {
        let review = json!({"request": {"uid": "u", "objects": [{}]}});
        let answer = |uid: &str, status: &str, objects: usize| {
            json!({"response": {
                "uid": uid, "result": {"status": status, "message": "spec.size is missing"},
                "convertedObjects": vec![json!({}); objects],
            }})
        };
        assert!(judge(&review, &answer("u", "Success", 1)).is_ok());
        for (answer, expected) in [
            (answer("other", "Success", 1), "the answer is not a ConversionReview for the probe"),
            (answer("u", "Success", 0), "the answer is not a ConversionReview for the probe"),
            (json!({"kind": "Status"}), "the answer is not a ConversionReview for the probe"),
            (answer("u", "Failure", 0), "it could not convert the probe: spec.size is missing"),
        ] {
            assert_eq!(judge(&review, &answer).unwrap_err().to_string(), expected);
        }
    }
}
