//! Signals: the first ctrl-C or SIGTERM stops a run cleanly, the second at once; commands that only read stop at the first.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::CliError;
use crate::output::say;

/// The exit code after a signal.
pub(crate) const STOPPED: u8 = 130;

/// Cancels `stop` at a signal or after the timeout.
pub(crate) fn stop_on_signals(timeout: Option<Duration>) -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let told = stop.clone();
    tokio::spawn(async move {
        let out_of_time = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => say!("stopping when the requests in flight are done (press ctrl-C again to \
            stop immediately)"),
            _ = terminate.recv() => say!("stopping when the requests in flight are done"),
            () = out_of_time => say!("timed out; stopping when the requests in flight are done"),
        }
        told.cancel();
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(i32::from(STOPPED));
    });
    Ok(stop)
}

/// Runs a command that can be interrupted at any time, until a signal.
pub(crate) async fn stoppable(command: impl Future<Output = Result<u8, CliError>>) -> Result<u8, CliError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::failed)?;
    tokio::select! {
        ended = command => ended,
        _ = interrupt.recv() => Ok(STOPPED),
        _ = terminate.recv() => Ok(STOPPED),
    }
}

/// Runs something within an optional timeout; none after the timeout.
pub(crate) async fn in_time<T>(timeout: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match timeout {
        Some(timeout) => tokio::time::timeout(timeout, work).await.ok(),
        None => Some(work.await),
    }
}
