//! restow's webhook makes its certificates, registers itself, and rotates under load; its replicas are restarted.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::join_all;
use k8s_openapi::ByteString;
use restow_lab::{Cluster, ClusterSpec};
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

use crate::serving::{Gadgets, RULES, VERSIONS, define_rules, expected, persist, write_once};
use crate::support::{CRDS, Lab, Restow, name, patch, send, try_send, wait};

scenarios!(a_webhook_registers_itself_and_rotates_without_a_failed_request);

const SECRET: &str = "/api/v1/namespaces/default/secrets/gadget-webhook";
const OBJECTS: usize = 8;

/// One address in front of the replicas that are in it, as a Service is.
struct Pool {
    port: u16,
    members: Arc<Mutex<Vec<u16>>>,
    task: AbortHandle,
}

impl Pool {
    async fn start() -> Self {
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

    fn add(&self, replica: &Replica) {
        self.members.lock().unwrap().push(replica.port);
    }

    /// New connections go to others; those that are open stay.
    fn remove(&self, replica: &Replica) {
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
struct Replica {
    child: Child,
    port: u16,
    log: Arc<Mutex<String>>,
}

impl Replica {
    async fn start(restow: &Restow, pool: &Pool) -> Self {
        let url = format!("https://127.0.0.1:{}", pool.port);
        let args = ["webhook", "--listen", "127.0.0.1:0", "--url", &url, "--namespace", "default"];
        let secret = ["--certificate-secret", "gadget-webhook", "--log-format", "json"];
        let times = ["--settle", "4s", "--check-interval", "500ms", "--drain-delay", "1s"];
        let mut child = restow.command(&[&args[..], &secret, &times].concat()).spawn().unwrap();
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
        Self { child, port: address.rsplit(':').next().unwrap().parse().unwrap(), log }
    }

    /// Starts one, and adds it to the pool when it is ready.
    async fn join(client: &kube::Client, restow: &Restow, pool: &Pool) -> Self {
        let replica = Self::start(restow, pool).await;
        replica.is_ready(client).await;
        pool.add(&replica);
        replica
    }

    async fn is_ready(&self, client: &kube::Client) {
        wait("a replica to be ready", || async {
            let answer = self.readiness(client).await;
            answer.is_some_and(|(_, answer)| answer.starts_with("HTTP/1.1 200"))
        })
        .await;
    }

    /// The leaf that it serves, and what it says about its readiness to who trusts the authorities in the Secret.
    async fn readiness(&self, client: &kube::Client) -> Option<(CertificateDer<'static>, String)> {
        let secret = try_send(client, "GET", SECRET, None).await.ok()?;
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

    fn has_logged(&self, text: &str) -> bool {
        self.log.lock().unwrap().contains(text)
    }

    /// Takes it out of the pool, and ends it with SIGTERM.
    async fn end(mut self, pool: &Pool) {
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
fn pem(secret: &Value, key: &str) -> Vec<CertificateDer<'static>> {
    let bytes: ByteString = serde_json::from_value(secret["data"][key].clone()).unwrap();
    CertificateDer::pem_slice_iter(&bytes.0).collect::<Result<_, _>>().unwrap()
}

/// Asks for a new authority, and returns when all replicas serve a leaf of it. Others edit the CRD meanwhile.
async fn rotate(client: &kube::Client, gadgets: &Gadgets, replicas: [&Replica; 2], number: usize) {
    let before = send(client, "GET", SECRET, None).await;
    patch(client, SECRET, &json!({"metadata": {"annotations": {"restow.dev/rotate": "now"}}})).await;
    let edits = AtomicUsize::new(0);
    wait("another authority to sign", || async {
        let edit = edits.fetch_add(1, Ordering::SeqCst);
        let labels = json!({"metadata": {"labels": {format!("rotation-{number}"): edit.to_string()}}});
        patch(client, &format!("{CRDS}/{}", gadgets.crd_name()), &labels).await;
        let secret = send(client, "GET", SECRET, None).await;
        secret["data"]["tls.crt"] != before["data"]["tls.crt"]
    })
    .await;
    let after = send(client, "GET", SECRET, None).await;
    assert_eq!(after["metadata"]["annotations"]["restow.dev/rotate"], Value::Null);
    assert_eq!(pem(&after, "ca.crt").len(), pem(&before, "ca.crt").len() + 1, "both are trusted");
    let leaf = &pem(&after, "tls.crt")[0];
    for replica in replicas {
        wait("a replica to serve the new leaf", || async {
            replica.readiness(client).await.is_some_and(|(served, _)| served == *leaf)
        })
        .await;
    }
    let crd = send(client, "GET", &format!("{CRDS}/{}", gadgets.crd_name()), None).await;
    let last = (edits.load(Ordering::SeqCst) - 1).to_string();
    assert_eq!(crd["metadata"]["labels"][format!("rotation-{number}")], last, "the edit is kept");
    let bundle = &crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"];
    assert_eq!(*bundle, after["data"]["ca.crt"], "the CRD trusts all authorities");
}

/// A CRD without a conversion, objects in it, and rules.
async fn prepare(cluster: &Cluster, client: &kube::Client, gadgets: &Gadgets) {
    define_rules(client).await;
    let mut crd = gadgets.crd(cluster, 1);
    crd["spec"].as_object_mut().unwrap().remove("conversion");
    send(client, "POST", CRDS, Some(&crd)).await;
    gadgets.served(client).await;
    for index in 0..OBJECTS {
        send(client, "POST", &gadgets.path("v1alpha1", ""), Some(&gadgets.object(index))).await;
    }
    send(client, "POST", RULES, Some(&gadgets.rules())).await;
}

/// Starts two replicas without a certificate, which register themselves when API servers can reach them.
async fn register(
    client: &kube::Client,
    gadgets: &Gadgets,
    restow: &Restow,
    pool: &Pool,
) -> (Replica, Replica) {
    let (one, two) = (Replica::start(restow, pool).await, Replica::start(restow, pool).await);
    futures::join!(one.is_ready(client), two.is_ready(client));
    wait("the gate to say that nobody answers", || async {
        one.has_logged("NoAnswer") || two.has_logged("NoAnswer")
    })
    .await;
    let path = format!("{CRDS}/{}", gadgets.crd_name());
    let conversion = || async { send(client, "GET", &path, None).await["spec"]["conversion"].clone() };
    assert_eq!(
        conversion().await["strategy"],
        "None",
        "API servers would call a webhook that they cannot reach"
    );
    pool.add(&one);
    pool.add(&two);
    wait("the webhook to be registered", || async { conversion().await["strategy"] == "Webhook" }).await;
    let url = format!("https://127.0.0.1:{}/convert/{}/Gadget", pool.port, gadgets.group());
    assert_eq!(conversion().await["webhook"]["clientConfig"]["url"], url);
    // API servers hear of it a moment later.
    wait("API servers to convert", || async {
        let object = persist(client, "GET", &gadgets.path("v1", &name(0)), None).await;
        object["spec"] == expected(0, "v1", 0)
    })
    .await;
    (one, two)
}

async fn a_webhook_registers_itself_and_rotates_without_a_failed_request(lab: Lab) {
    let (cluster, gadgets) = (lab.cluster(ClusterSpec::new()).await, Gadgets { plural: "rotatedgadgets" });
    let (client, restow) = (cluster.client(0).unwrap(), Restow::new(&cluster));
    prepare(&cluster, &client, &gadgets).await;
    let pool = Pool::start().await;
    let (one, two) = register(&client, &gadgets, &restow, &pool).await;
    let done = AtomicBool::new(false);
    let churn = async |index: usize| {
        let mut round = 0;
        while !done.load(Ordering::SeqCst) {
            round += 1;
            write_once(&client, &gadgets, index, round).await;
        }
        round
    };
    let lists = async {
        while !done.load(Ordering::SeqCst) {
            for version in VERSIONS {
                let list = persist(&client, "GET", &gadgets.path(version, ""), None).await;
                assert_eq!(list["items"].as_array().unwrap().len(), OBJECTS);
            }
        }
    };
    let changes = async {
        rotate(&client, &gadgets, [&one, &two], 1).await;
        rotate(&client, &gadgets, [&one, &two], 2).await;
        one.end(&pool).await;
        let three = Replica::join(&client, &restow, &pool).await;
        rotate(&client, &gadgets, [&two, &three], 3).await;
        two.end(&pool).await;
        let four = Replica::join(&client, &restow, &pool).await;
        rotate(&client, &gadgets, [&three, &four], 4).await;
        done.store(true, Ordering::SeqCst);
        (three, four)
    };
    let (rounds, (), replicas) = futures::join!(join_all((0..OBJECTS).map(churn)), lists, changes);
    for (index, rounds) in rounds.iter().enumerate() {
        assert!(*rounds > 4, "object {index} was written {rounds} times");
        for version in VERSIONS {
            let object = send(&client, "GET", &gadgets.path(version, &name(index)), None).await;
            assert_eq!(object["spec"], expected(index, version, *rounds), "{version} of {index}");
        }
    }
    let mut stored = 0;
    let check = |key: &str, bytes: &[u8]| {
        let object: Value = serde_json::from_slice(bytes).unwrap();
        let index: usize = object["metadata"]["labels"]["number"].as_str().unwrap().parse().unwrap();
        assert_eq!(object["apiVersion"], format!("{}/v1alpha1", gadgets.group()), "{key}");
        assert_eq!(object["spec"], expected(index, "v1alpha1", rounds[index]), "{key}");
        stored += 1;
    };
    let prefix = format!("/registry/{}/{}/", gadgets.group(), gadgets.plural);
    cluster.store().for_each(&prefix, check).await.unwrap();
    assert_eq!(stored, OBJECTS);
    drop(replicas);
}
