//! A KMS v2 plugin on a Unix socket, whose key a test can rotate. It returns its input: nothing is encrypted.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::{
    net::UnixListener,
    task::{AbortHandle, JoinSet},
};

use crate::Encryption;

/// The name of the plugin in configurations.
const NAME: &str = "lab";

type Answer = Response<UnsyncBoxBody<Bytes, std::convert::Infallible>>;

/// A KMS v2 plugin; it ends when it is dropped.
#[derive(Debug)]
pub struct KmsPlugin {
    keys: Arc<Mutex<Keys>>,
    socket: PathBuf,
    listener: AbortHandle,
    _dir: TempDir,
}

#[derive(Debug)]
struct Keys {
    /// The key id that Status returns.
    named: String,
    /// The key id that Encrypt returns.
    used: String,
    /// How often Status was called.
    asked: usize,
}

impl KmsPlugin {
    /// Starts a plugin whose key has this id.
    pub fn start(key: &str) -> Result<Self> {
        let dir = tempfile::tempdir().context("making a directory")?;
        let socket = dir.path().join("kms.sock");
        let listener = UnixListener::bind(&socket).context("listening")?;
        let keys = Arc::new(Mutex::new(Keys { named: key.to_owned(), used: key.to_owned(), asked: 0 }));
        let listener = tokio::spawn(accept(listener, Arc::clone(&keys))).abort_handle();
        Ok(Self { keys, socket, listener, _dir: dir })
    }

    /// Rotates to the key with this id.
    pub fn rotate(&self, key: &str) {
        let mut keys = lock(&self.keys);
        (keys.named, keys.used) = (key.to_owned(), key.to_owned());
    }

    /// Returns this key id in Status and keeps using the former key, so that an API server cannot use the new one.
    pub fn name_only(&self, key: &str) {
        key.clone_into(&mut lock(&self.keys).named);
    }

    /// How often API servers have queried its key.
    pub fn asked(&self) -> usize {
        lock(&self.keys).asked
    }

    /// The hash under which an API server publishes this key id, in hexadecimal digits.
    pub fn hash(key: &str) -> String {
        format!("{:x}", Sha256::digest(key))
    }

    /// Secrets under this plugin; plain text is read too.
    pub fn encryption(&self) -> Encryption {
        Encryption::secrets(&format!(
            "  - kms:\n      apiVersion: v2\n      name: {NAME}\n      endpoint: unix://{}\n  - identity: {{}}\n",
            self.socket.display()
        ))
    }
}

impl Drop for KmsPlugin {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

fn lock(keys: &Mutex<Keys>) -> MutexGuard<'_, Keys> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts connections until it is aborted, which closes them.
async fn accept(listener: UnixListener, keys: Arc<Mutex<Keys>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let keys = Arc::clone(&keys);
        let service = service_fn(move |request| answer(request, Arc::clone(&keys)));
        let connection = http2::Builder::new(TokioExecutor::new());
        connections.spawn(connection.serve_connection(TokioIo::new(stream), service));
        while connections.try_join_next().is_some() {}
    }
}

/// Answers a call: a message after five bytes, and the status in a trailer.
async fn answer(request: Request<Incoming>, keys: Arc<Mutex<Keys>>) -> io::Result<Answer> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    let given = first_field(body.get(5..).unwrap_or_default());
    let message = {
        let mut keys = lock(&keys);
        keys.asked += usize::from(method == "Status");
        match method.as_str() {
            "Status" => [field(1, b"v2"), field(2, b"ok"), field(3, keys.named.as_bytes())].concat(),
            "Encrypt" => [field(1, &given), field(2, keys.used.as_bytes())].concat(),
            _ => field(1, &given),
        }
    };
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).map_err(io::Error::other)?.to_be_bytes());
    frame.extend(message);
    let trailers = HeaderMap::from_iter([(
        header::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let body = Full::new(Bytes::from(frame)).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body.boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// A field of bytes, as protobuf encodes it.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        field.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend(bytes);
    field
}

/// The bytes of the first field of a message, which holds what is to be encrypted or decrypted.
fn first_field(message: &[u8]) -> Vec<u8> {
    let Some((10, rest)) = message.split_first() else { return Vec::new() };
    let (mut length, mut read) = (0, 0);
    for byte in rest {
        length |= usize::from(byte & 0x7f) << (7 * read);
        read += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    rest.get(read..read + length).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_are_written() {
        for length in [0, 1, 127, 128, 300, 20_000] {
            let bytes = vec![7; length];
            assert_eq!(first_field(&[field(1, &bytes), field(2, b"x")].concat()), bytes);
        }
        assert_eq!(first_field(&[]), Vec::<u8>::new());
    }
}
