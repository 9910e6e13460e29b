//! A TCP proxy on loopback whose connections can be cut, for tests of lost networks.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result};
use tokio::{
    io,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};

/// A proxy in front of one address; it ends when it is dropped, and its connections with it.
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
            cuts: watch::channel(0).0,
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { addr, shared, listener: task.abort_handle() })
    }

    /// Where the proxy listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of the API server behind it; the server's certificate holds for it too.
    pub fn url(&self) -> String {
        format!("https://{}", self.addr)
    }

    /// Resets every connection there is; new ones are still taken.
    pub fn cut_connections(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Whether new connections are reset at once; those there are go on.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refuse.store(refuse, Ordering::SeqCst);
    }

    /// How many connections came in, refused ones too.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
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
            tokio::spawn(forward(incoming, shared.target, shared.cuts.subscribe()));
        }
    }
}

async fn forward(mut incoming: TcpStream, target: SocketAddr, mut cuts: watch::Receiver<u64>) {
    let Ok(mut outgoing) = TcpStream::connect(target).await else { return reset(incoming) };
    let cut = tokio::select! {
        _ = io::copy_bidirectional(&mut incoming, &mut outgoing) => false,
        _ = cuts.changed() => true,
    };
    if cut {
        reset(incoming);
        reset(outgoing);
    }
}

/// Closes a connection with a reset instead of an orderly end.
fn reset(stream: TcpStream) {
    stream.set_zero_linger().ok();
}
