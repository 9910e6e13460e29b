//! Limits and timeouts of the server.

use std::thread::available_parallelism;
use std::time::Duration;

use restow_convert::review::Limits;

/// Limits and timeouts of the server.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What one review may take.
    pub limits: Limits,
    /// How many reviews are converted at the same time. More wait.
    pub at_once: usize,
    /// How many more threads may convert parts of large reviews, for all reviews together.
    pub helpers: usize,
    /// How many threads may be left to converters that do not return, besides those that work.
    pub abandoned: usize,
    /// How many bytes of requests may be in memory at the same time. More wait before they are read.
    pub memory: usize,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How long a request may take altogether. API servers wait for 30 seconds; a shorter time tells them why.
    pub timeout: Duration,
    /// How long requests are still accepted after the server was told to stop, so that its address can leave the
    /// Service first.
    pub drain_delay: Duration,
    /// Limits on connections.
    pub listen: restow_listen::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        let timeout = Duration::from_secs(25);
        let grace = timeout + Duration::from_secs(5);
        Self {
            limits: Limits::default(),
            at_once: available_parallelism().map_or(1, usize::from).saturating_mul(4).max(16),
            helpers: available_parallelism().map_or(0, |processors| usize::from(processors) - 1),
            abandoned: 32,
            memory: 256 << 20,
            body_timeout: Duration::from_secs(10),
            timeout,
            drain_delay: Duration::ZERO,
            listen: restow_listen::Settings { grace, ..restow_listen::Settings::default() },
        }
    }
}
