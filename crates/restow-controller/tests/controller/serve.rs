//! Health and metrics over real connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use restow_controller::observe::health::Health;
use restow_controller::observe::metrics::Metrics;
use restow_controller::observe::serve::serve;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

struct Served {
    addr: SocketAddr,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

async fn start() -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (health, metrics, stop) =
        (Arc::<Health>::default(), Arc::<Metrics>::default(), CancellationToken::new());
    let task = tokio::spawn(serve(listener, Arc::clone(&health), Arc::clone(&metrics), stop.clone()));
    Served { addr, health, metrics, stop, task }
}

/// Reads until the connection is closed; empty if it is reset.
async fn rest(mut connection: TcpStream) -> String {
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.ok();
    answer
}

impl Served {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str) -> String {
        let mut connection = self.connect().await;
        let request = format!("{method} {path} HTTP/1.1\r\nHost: restow\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        rest(connection).await
    }

    /// The status and the body.
    async fn get(&self, path: &str) -> (u16, String) {
        let answer = self.ask("GET", path).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.trim_end().to_owned())
    }
}

#[tokio::test]
async fn healthz_and_readyz_report_the_state() {
    let served = start().await;
    assert_eq!(served.get("/healthz").await, (200, "ok".to_owned()));
    assert_eq!(served.get("/readyz").await, (500, "waiting for startup".to_owned()));
    served.health.waits_for("the definitions");
    assert_eq!(served.get("/readyz").await, (500, "waiting for the definitions".to_owned()));
    served.health.ready();
    assert_eq!(served.get("/readyz").await, (200, "ok".to_owned()));

    served.health.beat("trigger", Duration::from_secs(3600));
    assert_eq!(served.get("/healthz?verbose").await, (200, "ok".to_owned()));
    served.health.beat("migrator", Duration::ZERO);
    let (status, body) = served.get("/healthz").await;
    assert!(status == 500 && body.contains("migrator") && !body.contains("trigger"), "{status} {body}");
}

#[tokio::test]
async fn metrics_are_served_in_prometheus_format() {
    let served = start().await;
    served.metrics.leading(true);
    let answer = served.ask("GET", "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    assert!(answer.contains("\nrestow_leader 1\n"), "{answer}");
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let served = start().await;
    for (method, path, status) in [
        ("GET", "/", 404),
        ("GET", "/metrics/more", 404),
        ("POST", "/nothing", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/healthz", 405),
        ("HEAD", "/healthz", 200),
    ] {
        let answer = served.ask(method, path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {answer}");
        assert_eq!(answer.contains("allow: GET, HEAD\r\n"), status == 405, "{answer}");
        assert_eq!(answer.ends_with("\r\n\r\n"), method == "HEAD", "{answer}");
    }
    // Invalid requests and endless headers do not stop the server from answering.
    for bytes in
        ["nonsense\r\n\r\n".to_owned(), "GET /healthz HTTP/1.1\r\nLong: ".to_owned() + &"x".repeat(100_000)]
    {
        let mut connection = served.connect().await;
        connection.write_all(bytes.as_bytes()).await.ok();
        let answer = rest(connection).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(served.get("/healthz").await.0, 200);
}

/// The clock is paused, and advances to the next timer when all tasks wait.
#[tokio::test(start_paused = true)]
async fn silent_connections_are_closed() {
    let served = start().await;
    let began = tokio::time::Instant::now();
    let mut silent = Vec::new();
    // More than are served at once: the last ones are only accepted when the first are closed.
    for _ in 0..40 {
        silent.push(served.connect().await);
    }
    let mut slow = served.connect().await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost:").await.unwrap();
    silent.push(slow);
    for connection in silent {
        assert_eq!(rest(connection).await, "");
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(served.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn a_stopped_server_closes_all_connections() {
    let served = start().await;
    let idle = served.connect().await;
    assert_eq!(served.get("/healthz").await.0, 200);
    served.stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), served.task).await.expect("an end").unwrap();
    assert_eq!(rest(idle).await, "");
    assert!(TcpStream::connect(served.addr).await.is_err(), "the port is still open");
}
