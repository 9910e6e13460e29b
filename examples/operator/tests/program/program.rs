//! The program as a process, with just the permissions that it prints, and one address in front of its replicas.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use k8s_openapi::ByteString;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::pages::send;
use crate::servers::{Bench, USER, wait};

pub(crate) const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pages.example.com";

impl Bench {
    /// How many pages are stored in each version.
    pub(crate) async fn stored_as(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for page in self.stored().await {
            let version = page["apiVersion"].as_str().unwrap().trim_start_matches("example.com/").to_owned();
            *counts.entry(version).or_default() += 1;
        }
        counts
    }

    pub(crate) async fn crd(&self) -> Value {
        send(&self.client(), "GET", CRD, None).await.unwrap_or_default()
    }

    /// Gives the user what the program prints, and nothing else.
    pub(crate) async fn permit(&self) {
        let program = env!("CARGO_BIN_EXE_page-operator");
        let printed = Command::new(program).args(["--print-permissions", USER]).output().await.unwrap();
        let list: Value = serde_json::from_slice(&printed.stdout).unwrap();
        for object in list["items"].as_array().unwrap() {
            let mut object = object.clone();
            if object["subjects"].is_array() {
                object["subjects"] =
                    json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]);
            }
            let kind = object["kind"].as_str().unwrap().to_lowercase();
            let place = object["metadata"]["namespace"].as_str().map(|name| format!("/namespaces/{name}"));
            let path = format!("/apis/rbac.authorization.k8s.io/v1{}/{kind}s", place.unwrap_or_default());
            send(&self.client(), "POST", &path, Some(&object)).await.unwrap();
        }
    }
}

/// One address in front of the replicas that are in it, as a Service is.
pub(crate) struct Pool {
    port: u16,
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

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn remove(&self, port: u16) {
        self.members.lock().unwrap().retain(|member| *member != port);
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

/// The program as a process, which is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    port: u16,
    log: Arc<Mutex<String>>,
}

impl Program {
    /// Starts it, and puts it behind the address of the pool.
    pub(crate) async fn start(bench: &Bench, pool: &Pool, more: &[&str]) -> Self {
        let url = pool.url();
        let mut command = Command::new(env!("CARGO_BIN_EXE_page-operator"));
        command.args(["--listen", "127.0.0.1:0", "--url", &url, "--drain-seconds", "1"]);
        command.arg("--kubeconfig").arg(bench.kubeconfig()).args(more).env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&log);
        let (found, port) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut found = Some(found);
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((_, rest)) = line.split_once("address=127.0.0.1:")
                    && let Some(found) = found.take()
                {
                    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                    found.send(digits.parse::<u16>().unwrap()).unwrap();
                }
                written.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let port = port.await.expect("an address");
        pool.members.lock().unwrap().push(port);
        Self { child, port, log }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn has_logged(&self, text: &str) -> bool {
        self.log.lock().unwrap().contains(text)
    }

    /// Waits until it says something.
    pub(crate) async fn says(&self, text: &str) {
        wait(&format!("the operator to say {text:?}"), || async { self.has_logged(text) }).await;
    }

    /// What `/metrics` says to who trusts the authorities in the Secret.
    pub(crate) async fn metrics(&self, bench: &Bench) -> String {
        let path = "/api/v1/namespaces/default/secrets/page-operator-certificates";
        let secret = send(&bench.client(), "GET", path, None).await.unwrap();
        let pem: ByteString = serde_json::from_value(secret["data"]["ca.crt"].clone()).unwrap();
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&pem.0) {
            roots.add(authority.unwrap()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let host = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(host, stream).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Some close without a word of goodbye, which is an error after the answer.
        drop(stream.read_to_end(&mut answer).await);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Ends it with SIGKILL, in the middle of whatever it does.
    pub(crate) async fn kill(mut self, pool: &Pool) {
        pool.remove(self.port);
        self.child.kill().await.unwrap();
    }

    /// Ends it with SIGTERM, as a rolling update would.
    pub(crate) async fn end(mut self, pool: &Pool) {
        pool.remove(self.port);
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(self.child.wait().await.unwrap().code(), Some(0), "{}", self.log());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- operator {}\n{}", self.port, self.log());
        }
    }
}
