use bytes::Bytes;
use http_body_util::Full;
use kube::{Client, Config};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// How long the server under test waits for a request.
const SHORT: Duration = Duration::from_secs(1);

/// How many connections each peer of the server under test may have.
const FEW: usize = 8;

/// Starts a server that cancels `came` and waits for `held`, unless a request's path is `/now` or `/known`.
async fn server(
    came: CancellationToken,
    held: CancellationToken,
) -> (SocketAddr, Vec<u8>, CancellationToken, tokio::task::JoinHandle<()>) {
    server_with(came, held, Settings { per_peer: FEW, first: SHORT, idle: 2 * SHORT, ..Settings::default() })
        .await
}

/// A certificate for loopback addresses, which signs itself, and its DER.
fn certificate() -> (TlsAcceptor, Vec<u8>) {
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;
    use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let der = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = tokio_rustls::rustls::crypto::ring::default_provider();
    let key = CertifiedKey::from_der(vec![der.clone()], key, &provider).unwrap();
    (crate::acceptor(Arc::new(SingleCertAndKey::from(key))).unwrap(), der.to_vec())
}

async fn server_with(
    came: CancellationToken,
    held: CancellationToken,
    settings: Settings,
) -> (SocketAddr, Vec<u8>, CancellationToken, tokio::task::JoinHandle<()>) {
    let (acceptor, ca) = certificate();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let service = tower::service_fn(move |request: Request<Incoming>| {
        let (came, held) = (came.clone(), held.clone());
        async move {
            let known = request.uri().path() == "/known";
            if request.uri().path() != "/now" && !known {
                came.cancel();
                held.cancelled().await;
            }
            let peer = request.extensions().get::<Peer>().copied().unwrap();
            let text = format!("{:?} {}", request.version(), peer.0.ip());
            let mut response = Response::new(Full::new(Bytes::from(text)));
            if known {
                response.extensions_mut().insert(Known);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let stopped = stop.clone();
    let running = tokio::spawn(async move {
        serve(listener, acceptor, service, stopped, settings).await;
    });
    (address, ca, stop, running)
}

fn client(address: SocketAddr, ca: Vec<u8>) -> Client {
    let mut config = Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Some(vec![ca]);
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn get(client: &Client, path: &str) -> Result<String, String> {
    let request = Request::get(path).body(Vec::new()).unwrap();
    client.request_text(request).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn requests_carry_the_address_of_their_peer() {
    let (address, ca, stop, running) = server(CancellationToken::new(), CancellationToken::new()).await;
    let answer = get(&client(address, ca), "/now").await.unwrap();
    assert!(answer.ends_with("127.0.0.1"), "{answer}");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn requests_in_flight_are_answered_before_shutdown() {
    let (came, held) = (CancellationToken::new(), CancellationToken::new());
    let (address, ca, stop, running) = server(came.clone(), held.clone()).await;
    let slow = tokio::spawn({
        let client = client(address, ca);
        async move { get(&client, "/slow").await }
    });
    came.cancelled().await;
    stop.cancel();
    let closed = async { while tokio::net::TcpStream::connect(address).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(20), closed).await.expect("nobody listens any more");
    assert!(!running.is_finished());
    held.cancel();
    slow.await.unwrap().unwrap();
    running.await.unwrap();
}

#[tokio::test]
async fn bytes_that_are_no_tls_are_not_answered() {
    let (address, ca, stop, running) = server(CancellationToken::new(), CancellationToken::new()).await;
    for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0xff; 4096], b""] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(noise).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    get(&client(address, ca), "/now").await.unwrap();
    stop.cancel();
    running.await.unwrap();
}

/// A connection after its handshake, which speaks this protocol.
async fn connected(
    address: SocketAddr,
    ca: &[u8],
    protocol: &[u8],
) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(ca.to_vec())).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(ServerName::IpAddress(address.ip().into()), stream).await.unwrap()
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let (address, ca, stop, running) = server(CancellationToken::new(), CancellationToken::new()).await;
    // The connection preface and empty settings of HTTP/2.
    let http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".as_slice();
    let request = b"GET /now HTTP/1.1\r\nhost: a\r\n\r\n".as_slice();
    let cases = [
        (b"http/1.1".as_slice(), b"".as_slice()),
        (b"http/1.1", b"GET /n"),
        (b"http/1.1", request),
        (b"h2", b""),
        (b"h2", b"PRI * HT"),
        (b"h2", http2),
    ];
    futures::future::join_all(cases.map(async |(protocol, sent)| {
        let mut stream = connected(address, &ca, protocol).await;
        stream.write_all(sent).await.unwrap();
        let mut answer = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "{:?}", String::from_utf8_lossy(sent));
    }))
    .await;
    stop.cancel();
    running.await.unwrap();
}

/// A plain connection from an address of this machine.
async fn from(source: &str, address: SocketAddr) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
    socket.connect(address).await.unwrap()
}

/// Whether the server leaves a connection open: it waits for a handshake.
async fn is_kept(stream: &mut tokio::net::TcpStream) -> bool {
    tokio::time::timeout(SHORT / 2, stream.read(&mut [0])).await.is_err()
}

#[tokio::test]
async fn one_peer_cannot_take_all_connections() {
    let (address, _, stop, running) = server(CancellationToken::new(), CancellationToken::new()).await;
    let mut held = Vec::new();
    for _ in 0..FEW {
        held.push(from("127.0.0.1", address).await);
    }
    assert!(is_kept(held.last_mut().unwrap()).await);
    assert!(!is_kept(&mut from("127.0.0.1", address).await).await, "one more than a peer may have");
    assert!(is_kept(&mut from("127.0.0.2", address).await).await, "another peer");
    drop(held);
    let again = async { while !is_kept(&mut from("127.0.0.1", address).await).await {} };
    tokio::time::timeout(Duration::from_secs(20), again).await.expect("those that ended do not count");
    stop.cancel();
    running.await.unwrap();
}

type Stream = tokio_rustls::client::TlsStream<tokio::net::TcpStream>;

/// Sends a request on a connection that stays open.
async fn ask(stream: &mut Stream, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = [0; 1024];
    let length = stream.read(&mut answer).await.unwrap();
    assert!(
        answer[..length].starts_with(b"HTTP/1.1 200"),
        "{:?}",
        String::from_utf8_lossy(&answer[..length])
    );
}

/// Anybody may send health checks, so they must not keep a connection open when others need it.
#[tokio::test]
async fn idle_connections_of_unknown_clients_make_room_for_others() {
    let long = Duration::from_secs(600);
    let limits = Settings { at_once: 4, per_peer: 100, first: long, idle: long, ..Settings::default() };
    let (address, ca, stop, running) =
        server_with(CancellationToken::new(), CancellationToken::new(), limits).await;
    let mut known = connected(address, &ca, b"http/1.1").await;
    ask(&mut known, "/known").await;
    let mut held = Vec::new();
    for _ in 0..12 {
        let connect = async {
            let mut stream = connected(address, &ca, b"http/1.1").await;
            ask(&mut stream, "/now").await;
            stream
        };
        let stream = tokio::time::timeout(Duration::from_secs(20), connect).await;
        held.push(stream.expect("a new connection is served"));
    }
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(20), held[0].read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the longest idle one is closed");
    ask(&mut known, "/now").await;
    stop.cancel();
    running.await.unwrap();
}
