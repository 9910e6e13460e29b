//! The garbage collector: deletes dependents with their owners, by ownerReferences: in the background, in the foreground,
//! or not at all.
//!
//! A [`Graph`] has only the keys of objects with owners, and of owners that wait for their dependents. It is filled by one
//! scan and follows every change in order. Each decision is made on objects that are read again.

mod collector;
mod follow;
mod graph;
mod process;
mod reference;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use restow_clock::Instant;
use tokio::sync::Notify;

use super::writer::Writer;
use crate::verbs::api::Api;
use collector::{Collector, PAUSE};
use process::Processed;

/// How many objects are processed concurrently.
const AT_ONCE: usize = 16;
/// The longest pause before a retry.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

impl Collector {
    /// Processes the queue; never ends.
    async fn work(&self) {
        let mut failed = Vec::new();
        let (mut pause, mut again_at) = (PAUSE, Instant::now());
        loop {
            let batch = self.state().batch();
            if batch.is_empty() {
                if failed.is_empty() {
                    pause = PAUSE;
                    self.more.notified().await;
                } else if tokio::time::timeout_at(again_at, self.more.notified()).await.is_err() {
                    pause = LONGEST_PAUSE.min(pause * 2);
                    self.enqueue(failed.drain(..));
                }
                continue;
            }
            let each = batch.into_iter().map(|key| async { (self.process(&key).await, key) });
            let mut processed = stream::iter(each).buffer_unordered(AT_ONCE);
            while let Some((done, key)) = processed.next().await {
                if done == Processed::Later {
                    if failed.is_empty() {
                        again_at = Instant::now() + pause;
                    }
                    failed.push(key);
                }
            }
        }
    }
}

/// Collects garbage; never ends.
pub(super) async fn run(api: Arc<Api>, writer: Writer) {
    let collector = Collector { api, writer, state: Mutex::default(), more: Notify::new() };
    futures::join!(collector.follow(), collector.work());
}
