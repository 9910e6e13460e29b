//! A server with converters that do what a test tells them.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use restow_convert::{Converter, Converters, Convertible, Error};
use restow_webhook::serve::Server;
use restow_webhook::{LiveConverters, Settings};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_util::sync::CancellationToken;

use crate::client::Client;

/// Longer than anything takes that works.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Sets the apiVersion and a label. Objects with `spec.panic` panic; those with `spec.wait` wait to be released.
pub(crate) struct Obedient {
    label: &'static str,
    waits: Mutex<Receiver<()>>,
    came: Sender<()>,
}

/// Releases the objects that wait, one for each call.
pub(crate) struct Waiting {
    pub(crate) release: Sender<()>,
    pub(crate) came: Receiver<()>,
}

impl Obedient {
    pub(crate) fn new(label: &'static str) -> (Self, Waiting) {
        let ((release, waits), (came, seen)) = (channel(), channel());
        (Self { label, waits: Mutex::new(waits), came }, Waiting { release, came: seen })
    }
}

impl Convertible for Obedient {
    fn convert(&self, mut object: Value, version: &str) -> Result<Value, Error> {
        assert_ne!(object["spec"]["panic"], true, "asked to panic");
        if object["spec"]["wait"] == true {
            self.came.send(()).unwrap();
            let _ = self.waits.lock().unwrap().recv();
        }
        if object["spec"]["rename"] == true {
            object["metadata"]["name"] = "another".into();
        }
        object["metadata"]["labels"] = json!({"by": self.label});
        object["apiVersion"] = format!("example.com/{version}").into();
        Ok(object)
    }
}

pub(crate) fn converters(widget: Obedient) -> Converters {
    let gadget = Obedient::new("gadget").0;
    Converters::new([
        Converter::new("example.com", "Widget", ["v1", "v2"], widget),
        Converter::new("other.com", "Gadget", ["v1", "v2"], gadget),
    ])
    .unwrap()
}

pub(crate) fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn review(objects: &[Value]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u-1", "desiredAPIVersion": "example.com/v2", "objects": objects},
    })
}

/// A running server.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) ca: Vec<u8>,
    pub(crate) live: Arc<LiveConverters>,
    pub(crate) waiting: Waiting,
    pub(crate) stop: CancellationToken,
    pub(crate) ended: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(settings: Settings) -> Self {
        Self::start_with(settings, |server| server).await
    }

    pub(crate) async fn start_with(settings: Settings, more: impl FnOnce(Server) -> Server) -> Self {
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let der = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = tokio_rustls::rustls::crypto::ring::default_provider();
        let key = CertifiedKey::from_der(vec![der.clone()], key, &provider).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (widget, waiting) = Obedient::new("first");
        let live = Arc::new(LiveConverters::new(converters(widget)));
        let stop = CancellationToken::new();
        let server = more(Server::new(Arc::clone(&live)).settings(settings));
        let served = server.serve(listener, Arc::new(SingleCertAndKey::from(key)), stop.clone());
        let ended = tokio::spawn(async move { served.await.unwrap() });
        Self { address, ca: der.to_vec(), live, waiting, stop, ended }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::http1(self.address, &self.ca).await
    }

    pub(crate) async fn client2(&self) -> Client {
        Client::http2(self.address, &self.ca).await
    }

    /// Waits until a converter waits.
    pub(crate) async fn came(self) -> Self {
        let came = tokio::task::spawn_blocking(move || {
            self.waiting.came.recv_timeout(LONG).expect("a converter waits");
            self
        });
        came.await.unwrap()
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(LONG, self.ended).await.expect("the server ends").unwrap();
    }
}
