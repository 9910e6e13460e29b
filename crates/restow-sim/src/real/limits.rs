//! How long things may take on a real control plane.

use std::time::Duration;

/// The longest delay of an answer and the longest freeze of a server.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(20);
/// How long a run may take after the last fault. Nothing that restow waits for takes longer.
pub(super) const COMPLETION_TIMEOUT: Duration = Duration::from_secs(400);
