//! What readers and watches share with the writer.

use std::sync::Arc;

use super::{feed::Feed, handle::Handle, remaining::Remaining};

/// The open file, the feed of changes, and what is known about counts.
pub(super) struct Shared {
    pub(super) handle: Arc<Handle>,
    pub(super) feed: Arc<Feed>,
    pub(super) remaining: Remaining,
}
