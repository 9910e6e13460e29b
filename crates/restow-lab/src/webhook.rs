//! A conversion webhook for custom resources, which can be taken down and can deny objects.

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

/// A webhook of a test's own; it ends when it is dropped.
#[derive(Debug)]
pub struct ConversionWebhook {
    port: Port,
    ca_bundle: String,
    shared: Arc<Shared>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    tls: TlsAcceptor,
    convert: Box<Conversion>,
    deny: Mutex<Option<Box<Denial>>>,
    calls: AtomicU64,
    converted: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl ConversionWebhook {
    /// Starts one with a certificate of the cluster's authority. It sets the apiVersion after `convert` has changed
    /// what else it likes.
    pub async fn start(
        cluster: &Cluster,
        convert: impl Fn(&mut Value, &str) + Send + Sync + 'static,
    ) -> Result<Self> {
        let webhook = Self {
            port: Port::claim(&assets::cache_dir()?.join("ports"))?,
            ca_bundle: cluster.access().ca_bundle(),
            shared: Arc::new(Shared {
                tls: acceptor(cluster)?,
                convert: Box::new(convert),
                deny: Mutex::default(),
                calls: AtomicU64::new(0),
                converted: AtomicU64::new(0),
            }),
            listener: Mutex::default(),
        };
        webhook.up().await?;
        Ok(webhook)
    }

    /// `spec.conversion` of a definition that is converted by it.
    pub fn conversion(&self) -> Value {
        json!({
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {
                    "url": format!("https://127.0.0.1:{}/convert", self.port.number),
                    "caBundle": self.ca_bundle,
                },
            },
        })
    }

    /// Takes it down: connections are cut, and new ones refused once this has returned.
    pub async fn down(&self) {
        let listener = lock(&self.listener).take();
        if let Some(listener) = listener {
            listener.abort();
            listener.await.ok();
        }
    }

    /// Brings it back on the same port.
    pub async fn up(&self) -> Result<()> {
        self.down().await;
        let listener = TcpListener::bind(("127.0.0.1", self.port.number)).await.context("listening")?;
        *lock(&self.listener) = Some(tokio::spawn(accept(listener, Arc::clone(&self.shared))));
        Ok(())
    }

    /// Denies objects from now on, by their names and the apiVersion wanted; a review with one of them fails as a
    /// whole.
    pub fn deny(&self, why: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static) {
        *lock(&self.shared.deny) = Some(Box::new(why));
    }

    /// Denies nothing any more.
    pub fn mend(&self) {
        *lock(&self.shared.deny) = None;
    }

    /// How often it was called.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::SeqCst)
    }

    /// How many objects it has converted.
    pub fn converted(&self) -> u64 {
        self.shared.converted.load(Ordering::SeqCst)
    }
}

impl Drop for ConversionWebhook {
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
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let Ok(stream) = shared.tls.accept(stream).await else { return };
    let service = service_fn(|request| answer(request, &shared));
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

async fn answer(request: Request<Incoming>, shared: &Shared) -> io::Result<Response<Full<Bytes>>> {
    let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    let review: Value = serde_json::from_slice(&body)?;
    let answer = Bytes::from(shared.review(review).to_string());
    let mut response = Response::new(Full::new(answer));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Ok(response)
}

impl Shared {
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
