//! Replicas of `restow webhook` that keep their own certificates, behind one address as a Service is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use k8s_openapi::ByteString;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Child;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::serving::Gadgets;
use crate::support::{CRDS, Restow, patch, send, try_send, wait};

/// One address in front of the replicas that are in it, as a Service is.
pub(crate) struct Pool {
    pub(crate) port: u16,
    members: Arc<Mutex<Vec<u16>>>,
    task: AbortHandle,
}

impl Pool {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let members = Arc::<Mutex<Vec<u16>>>::default();
        let known = Arc::clone(&members);
        let accept = async move {
            while let Ok((incoming, _)) = listener.accept().await {
                let mut members = known.lock().unwrap();
                if let Some(port) = members.first().copied() {
                    members.rotate_left(1);
                    tokio::spawn(forward(incoming, port));
                }
            }
        };
        Self { port, members, task: tokio::spawn(accept).abort_handle() }
    }

    pub(crate) fn add(&self, replica: &Replica) {
        self.members.lock().unwrap().push(replica.port);
    }

    /// New connections go to others; those that are open stay.
    pub(crate) fn remove(&self, replica: &Replica) {
        self.members.lock().unwrap().retain(|port| *port != replica.port);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut incoming: TcpStream, port: u16) {
    if let Ok(mut outgoing) = TcpStream::connect(("127.0.0.1", port)).await {
        drop(tokio::io::copy_bidirectional(&mut incoming, &mut outgoing).await);
    }
}

/// `restow webhook` as a process that is given no certificate.
pub(crate) struct Replica {
    child: Child,
    pub(crate) port: u16,
    log: Arc<Mutex<String>>,
    /// The path of the Secret with its certificates.
    secret: String,
}

/// How replicas are started.
pub(crate) struct Replicas<'a> {
    pub(crate) restow: &'a Restow,
    pub(crate) pool: &'a Pool,
    pub(crate) namespace: &'a str,
    pub(crate) secret: &'a str,
    /// How long an authority must be trusted before it signs.
    pub(crate) settle: &'a str,
    pub(crate) more: &'a [&'a str],
}

impl Replicas<'_> {
    /// The path of the Secret with their certificates.
    pub(crate) fn secret_path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.secret)
    }
}

impl Replica {
    pub(crate) async fn start(how: &Replicas<'_>) -> Self {
        let url = format!("https://127.0.0.1:{}", how.pool.port);
        let args = ["webhook", "--listen", "127.0.0.1:0", "--url", &url, "--namespace", how.namespace];
        let secret = ["--certificate-secret", how.secret, "--log-format", "json"];
        let times = ["--settle", how.settle, "--check-interval", "500ms", "--drain-delay", "1s"];
        let mut child = how.restow.command(&[&args[..], &secret, &times, how.more].concat()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&log);
        let (found, address) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut found = Some(found);
            while let Ok(Some(line)) = lines.next_line().await {
                let fields = serde_json::from_str::<Value>(&line).unwrap_or_default();
                if let Some(address) = fields["fields"]["address"].as_str()
                    && let Some(found) = found.take()
                {
                    found.send(address.to_owned()).unwrap();
                }
                written.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let address = address.await.expect("an address");
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        Self { child, port, log, secret: how.secret_path() }
    }

    /// Starts one, and adds it to the pool when it is ready.
    pub(crate) async fn join(client: &kube::Client, how: &Replicas<'_>) -> Self {
        let replica = Self::start(how).await;
        replica.is_ready(client).await;
        how.pool.add(&replica);
        replica
    }

    pub(crate) async fn is_ready(&self, client: &kube::Client) {
        wait("a replica to be ready", || async {
            let answer = self.readiness(client).await;
            answer.is_some_and(|(_, answer)| answer.starts_with("HTTP/1.1 200"))
        })
        .await;
    }

    /// The leaf that it serves, and what it says about its readiness to who trusts the authorities in the Secret.
    pub(crate) async fn readiness(&self, client: &kube::Client) -> Option<(CertificateDer<'static>, String)> {
        let secret = try_send(client, "GET", &self.secret, None).await.ok()?;
        let mut roots = RootCertStore::empty();
        for authority in pem(&secret, "ca.crt") {
            roots.add(authority).unwrap();
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let host = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(host, stream).await.ok()?;
        let leaf = stream.get_ref().1.peer_certificates()?[0].clone().into_owned();
        let request = "GET /readyz HTTP/1.1\r\nHost: webhook\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        // Some close without a word of goodbye, which is an error after the answer.
        drop(stream.read_to_end(&mut answer).await);
        Some((leaf, String::from_utf8_lossy(&answer).into_owned()))
    }

    pub(crate) fn has_logged(&self, text: &str) -> bool {
        self.log.lock().unwrap().contains(text)
    }

    /// Takes it out of the pool, and ends it with SIGTERM.
    pub(crate) async fn end(mut self, pool: &Pool) {
        pool.remove(&self);
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(self.child.wait().await.unwrap().code(), Some(0), "{}", self.log.lock().unwrap());
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- replica {}\n{}", self.port, self.log.lock().unwrap());
        }
    }
}

/// The certificates in a key of a Secret.
pub(crate) fn pem(secret: &Value, key: &str) -> Vec<CertificateDer<'static>> {
    let bytes: ByteString = serde_json::from_value(secret["data"][key].clone()).unwrap();
    CertificateDer::pem_slice_iter(&bytes.0).collect::<Result<_, _>>().unwrap()
}

/// The fingerprints of all authorities in a Secret, and of the one that signs.
fn authorities(secret: &Value) -> (Vec<String>, String) {
    let bytes: ByteString = serde_json::from_value(secret["data"]["authorities.json"].clone()).unwrap();
    let all: Vec<Value> = serde_json::from_slice(&bytes.0).unwrap();
    let id = |authority: &Value| authority["id"].as_str().unwrap().to_owned();
    let signing = all.iter().find(|authority| authority["role"] == "signing").map(id).unwrap();
    (all.iter().map(id).collect(), signing)
}

/// Asks for a new authority, and returns when all replicas serve a leaf of it. Others edit the CRD meanwhile.
pub(crate) async fn rotate(client: &kube::Client, gadgets: &Gadgets, replicas: [&Replica; 2], number: usize) {
    let path = replicas[0].secret.as_str();
    let (_, former) = authorities(&send(client, "GET", path, None).await);
    patch(client, path, &json!({"metadata": {"annotations": {"restow.dev/rotate": "now"}}})).await;
    let edits = AtomicUsize::new(0);
    wait("another authority to sign", || async {
        let edit = edits.fetch_add(1, Ordering::SeqCst);
        let labels = json!({"metadata": {"labels": {"rotation": format!("{number}-{edit}")}}});
        patch(client, &format!("{CRDS}/{}", gadgets.crd_name()), &labels).await;
        authorities(&send(client, "GET", path, None).await).1 != former
    })
    .await;
    let after = send(client, "GET", path, None).await;
    assert_eq!(after["metadata"]["annotations"]["restow.dev/rotate"], Value::Null);
    let (all, signing) = authorities(&after);
    assert!(all.contains(&former) && all.contains(&signing), "both are trusted");
    for replica in replicas {
        wait("a replica to serve the new leaf", || async {
            // The leaf may be renewed meanwhile.
            let secret = send(client, "GET", path, None).await;
            let leaf = &pem(&secret, "tls.crt")[0];
            replica.readiness(client).await.is_some_and(|(served, _)| served == *leaf)
        })
        .await;
    }
    let crd = send(client, "GET", &format!("{CRDS}/{}", gadgets.crd_name()), None).await;
    let last = format!("{number}-{}", edits.load(Ordering::SeqCst) - 1);
    assert_eq!(crd["metadata"]["labels"]["rotation"], last, "the edit is kept");
    let bundle: ByteString =
        serde_json::from_value(crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].clone())
            .unwrap();
    let trusted: Vec<_> = CertificateDer::pem_slice_iter(&bundle.0).map(Result::unwrap).collect();
    let signer = pem(&after, "ca.crt").into_iter().nth(all.iter().position(|id| *id == signing).unwrap());
    assert!(trusted.contains(&signer.unwrap()), "the CRD trusts the authority that signs");
}
