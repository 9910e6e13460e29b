//! Webhooks on loopback: one that converts custom resources, can be taken down and can deny objects, and one that
//! denies writes with a status of the test's choice.

use std::{
    fmt, fs, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

use crate::{Cluster, assets, launch::WEBHOOK, ports::Port};

/// Says why an object of this name is not converted to this apiVersion, when it is not.
type Denial = dyn Fn(&str, &str) -> Option<String> + Send + Sync;
/// Changes an object that is converted to this apiVersion.
type Conversion = dyn Fn(&mut Value, &str) + Send + Sync;

/// Answers one review with another.
type Review = dyn Fn(Value) -> Value + Send + Sync;
/// Says with which code and message a write of an object of this name is denied, when it is.
type Refusal = dyn Fn(&str) -> Option<(u16, String)> + Send + Sync;

/// A conversion webhook of a test's own; it ends when it is dropped.
#[derive(Debug)]
pub struct ConversionWebhook {
    endpoint: Endpoint,
    converter: Arc<Converter>,
}

/// An admission webhook of a test's own, which denies updates; it ends when it is dropped.
#[derive(Debug)]
pub struct AdmissionWebhook {
    endpoint: Endpoint,
}

/// Where API servers send their reviews.
struct Endpoint {
    port: Port,
    ca_bundle: String,
    tls: TlsAcceptor,
    review: Arc<Review>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

struct Converter {
    convert: Box<Conversion>,
    deny: Mutex<Option<Box<Denial>>>,
    calls: AtomicU64,
    converted: AtomicU64,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("port", &self.port).finish_non_exhaustive()
    }
}

impl fmt::Debug for Converter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Converter").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl AdmissionWebhook {
    /// Starts one with a certificate of the cluster's authority. Updates for which `deny` gives a code and a message
    /// are denied with them.
    pub async fn start(
        cluster: &Cluster,
        deny: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static,
    ) -> Result<Self> {
        let review = move |review| admit(&deny, review);
        Ok(Self { endpoint: Endpoint::start(cluster, Arc::new(review)).await? })
    }

    /// The ValidatingWebhookConfiguration of this name for updates of one resource.
    pub fn configuration(&self, name: &str, group: &str, resource: &str) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": format!("{resource}.{group}"),
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": self.endpoint.client_config(),
                "rules": [{
                    "apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource],
                }],
            }],
        })
    }
}

/// Answers an AdmissionReview.
fn admit(deny: &Refusal, mut review: Value) -> Value {
    let request = review["request"].take();
    let mut response = json!({"uid": request["uid"], "allowed": true});
    if let Some((code, message)) = deny(request["name"].as_str().unwrap_or_default()) {
        response["allowed"] = false.into();
        response["status"] = json!({"code": code, "message": message});
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

impl Endpoint {
    async fn start(cluster: &Cluster, review: Arc<Review>) -> Result<Self> {
        let endpoint = Self {
            port: Port::claim(&assets::cache_dir()?.join("ports"))?,
            ca_bundle: cluster.access().ca_bundle(),
            tls: acceptor(cluster)?,
            review,
            listener: Mutex::default(),
        };
        endpoint.up().await?;
        Ok(endpoint)
    }

    fn client_config(&self) -> Value {
        json!({"url": format!("https://127.0.0.1:{}/review", self.port.number), "caBundle": self.ca_bundle})
    }

    async fn down(&self) {
        let listener = lock(&self.listener).take();
        if let Some(listener) = listener {
            listener.abort();
            listener.await.ok();
        }
    }

    async fn up(&self) -> Result<()> {
        self.down().await;
        let listener = TcpListener::bind(("127.0.0.1", self.port.number)).await.context("listening")?;
        let accepting = accept(listener, self.tls.clone(), Arc::clone(&self.review));
        *lock(&self.listener) = Some(tokio::spawn(accepting));
        Ok(())
    }
}

impl ConversionWebhook {
    /// Starts one with a certificate of the cluster's authority. It sets the apiVersion after `convert` has changed
    /// what else it likes.
    pub async fn start(
        cluster: &Cluster,
        convert: impl Fn(&mut Value, &str) + Send + Sync + 'static,
    ) -> Result<Self> {
        let converter = Arc::new(Converter {
            convert: Box::new(convert),
            deny: Mutex::default(),
            calls: AtomicU64::new(0),
            converted: AtomicU64::new(0),
        });
        let reviewing = Arc::clone(&converter);
        let review = move |review| reviewing.review(review);
        Ok(Self { endpoint: Endpoint::start(cluster, Arc::new(review)).await?, converter })
    }

    /// `spec.conversion` of a definition that is converted by it.
    pub fn conversion(&self) -> Value {
        json!({
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": self.endpoint.client_config(),
            },
        })
    }

    /// Takes it down: connections are cut, and new ones refused once this has returned.
    pub async fn down(&self) {
        self.endpoint.down().await;
    }

    /// Brings it back on the same port.
    pub async fn up(&self) -> Result<()> {
        self.endpoint.up().await
    }

    /// Denies objects from now on, by their names and the apiVersion wanted; a review with one of them fails as a
    /// whole.
    pub fn deny(&self, why: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static) {
        *lock(&self.converter.deny) = Some(Box::new(why));
    }

    /// Denies nothing any more.
    pub fn mend(&self) {
        *lock(&self.converter.deny) = None;
    }

    /// How often it was called.
    pub fn calls(&self) -> u64 {
        self.converter.calls.load(Ordering::SeqCst)
    }

    /// How many objects it has converted.
    pub fn converted(&self) -> u64 {
        self.converter.converted.load(Ordering::SeqCst)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(listener) = lock(&self.listener).take() {
            listener.abort();
        }
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn acceptor(cluster: &Cluster) -> Result<TlsAcceptor> {
    let read =
        |end: &str| fs::read(cluster.dir().join(format!("{WEBHOOK}.{end}"))).context("reading a certificate");
    let certificate = CertificateDer::from_pem_slice(&read("crt")?).context("reading a certificate")?;
    let key = PrivateKeyDer::from_pem_slice(&read("key")?).context("reading a key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Takes connections until it is aborted, which aborts them too.
async fn accept(listener: TcpListener, tls: TlsAcceptor, review: Arc<Review>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, tls.clone(), Arc::clone(&review)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, review: Arc<Review>) {
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(|request| answer(request, &*review));
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

async fn answer(request: Request<Incoming>, review: &Review) -> io::Result<Response<Full<Bytes>>> {
    let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    let answer = Bytes::from(review(serde_json::from_slice(&body)?).to_string());
    let mut response = Response::new(Full::new(answer));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Ok(response)
}

impl Converter {
    /// Answers a ConversionReview.
    fn review(&self, mut review: Value) -> Value {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let request = review["request"].take();
        let version = request["desiredAPIVersion"].as_str().unwrap_or_default();
        let mut objects = request["objects"].as_array().cloned().unwrap_or_default();
        let deny = lock(&self.deny);
        let denied = deny.as_ref().and_then(|deny| {
            let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            objects.iter().find_map(|object| deny(&name(object), version))
        });
        let response = match denied {
            Some(message) => {
                json!({"uid": request["uid"], "result": {"status": "Failure", "message": message}})
            }
            None => {
                for object in &mut objects {
                    (self.convert)(object, version);
                    object["apiVersion"] = version.into();
                }
                self.converted.fetch_add(objects.len() as u64, Ordering::SeqCst);
                json!({"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}})
            }
        };
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
    }
}
