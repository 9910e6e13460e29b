//! Reads bodies, within limits on their size, on the memory of all of them, and on time.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::respond::Refusal;

/// What is counted as one: memory is counted in KiB, because a semaphore counts no further than 2^29 on some machines.
const UNIT: usize = 1024;
/// How much is taken at once before a byte has arrived, whatever the client announced.
const FIRST: usize = 1 << 20;

/// Reads the bodies of all requests.
#[derive(Debug)]
pub(super) struct RequestBodies {
    limit: usize,
    timeout: Duration,
    memory: Arc<Semaphore>,
    most: u32,
}

impl RequestBodies {
    /// Bodies of up to `limit` bytes each, and of `memory` bytes altogether.
    pub(super) fn new(limit: usize, memory: usize, timeout: Duration) -> Self {
        let most = units(memory.max(limit));
        Self { limit, timeout, memory: Arc::new(Semaphore::new(most as usize)), most }
    }

    /// The whole body, and what it takes of the memory.
    ///
    /// The memory for all of it is reserved before the first byte is read. If it grew with the body, several large bodies
    /// could wait for each other for ever.
    pub(super) async fn read(
        &self,
        request: Request<Incoming>,
    ) -> Result<(Request<Bytes>, OwnedSemaphorePermit), Refusal> {
        let (parts, mut body) = request.into_parts();
        if parts.headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(Refusal::Compressed);
        }
        let announced = body.size_hint().upper().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let size = announced.unwrap_or(self.limit);
        if size > self.limit {
            return Err(Refusal::TooLarge(self.limit));
        }
        let reserve = Arc::clone(&self.memory).acquire_many_owned(units(size).min(self.most));
        let Ok(Ok(counted)) = timeout(self.timeout, reserve).await else { return Err(Refusal::Busy) };
        let read = async {
            let mut bytes = BytesMut::with_capacity(size.min(FIRST));
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(Refusal::Broken)?.into_data() else { continue };
                if bytes.len() + data.len() > self.limit {
                    return Err(Refusal::TooLarge(self.limit));
                }
                bytes.extend_from_slice(&data);
            }
            Ok(bytes.freeze())
        };
        let bytes = timeout(self.timeout, read).await.map_err(|_| Refusal::SlowBody)??;
        Ok((Request::from_parts(parts, bytes), counted))
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes / UNIT + 1).unwrap_or(u32::MAX >> 4).min(u32::MAX >> 4)
}
