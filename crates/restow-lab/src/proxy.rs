//! A TCP proxy on loopback that can cut its connections and counts bytes, for tests of network failures.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::AbortHandle,
};

/// A proxy in front of one address; dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    listener: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    refuse: AtomicBool,
    connections: AtomicU64,
    /// Bytes from clients to the target, and back.
    sent: AtomicU64,
    received: AtomicU64,
    /// Counts the cuts; every connection watches it.
    cuts: watch::Sender<u64>,
}

impl Proxy {
    /// Listens on a free loopback port and forwards every connection to `target`.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listening")?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            refuse: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            cuts: watch::channel(0).0,
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { addr, shared, listener: task.abort_handle() })
    }

    /// Where the proxy listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of the proxy; the API server's certificate is valid for it.
    pub fn url(&self) -> String {
        format!("https://{}", self.addr)
    }

    /// Resets all connections; new ones are still accepted.
    pub fn cut_connections(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Sets whether new connections are reset at once; existing ones continue.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refuse.store(refuse, Ordering::SeqCst);
    }

    /// The number of connections so far, including refused ones.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many bytes clients have sent and received through it, TLS included.
    pub fn bytes(&self) -> (u64, u64) {
        (self.shared.sent.load(Ordering::SeqCst), self.shared.received.load(Ordering::SeqCst))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
        self.cut_connections();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((incoming, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        if shared.refuse.load(Ordering::SeqCst) {
            reset(incoming);
        } else {
            tokio::spawn(forward(incoming, Arc::clone(&shared)));
        }
    }
}

async fn forward(incoming: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    let Ok(outgoing) = TcpStream::connect(shared.target).await else { return reset(incoming) };
    let ((mut from, mut back), (mut answers, mut to)) = (incoming.into_split(), outgoing.into_split());
    let cut = tokio::select! {
        _ = async {
            tokio::try_join!(
                copy(&mut from, &mut to, &shared.sent),
                copy(&mut answers, &mut back, &shared.received)
            )
        } => false,
        _ = cuts.changed() => true,
    };
    if cut {
        for (read, write) in [(from, back), (answers, to)] {
            if let Ok(stream) = read.reunite(write) {
                reset(stream);
            }
        }
    }
}

/// Forwards bytes until the end of the stream, which is forwarded too.
async fn copy(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, count: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        count.fetch_add(length as u64, Ordering::SeqCst);
    }
}

/// Closes a connection with a reset.
fn reset(stream: TcpStream) {
    stream.set_zero_linger().ok();
}
