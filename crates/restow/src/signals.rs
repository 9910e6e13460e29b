//! ctrl-C and termination: the first stops cleanly, the second at once.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels `stop` when a signal comes, or when the time is over.
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
            _ = interrupt.recv() => eprintln!("stopping; what is under way is finished first (ctrl-C again: at once)"),
            _ = terminate.recv() => eprintln!("stopping; what is under way is finished first"),
            () = out_of_time => eprintln!("the time is over; what is under way is finished first"),
        }
        told.cancel();
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(130);
    });
    Ok(stop)
}
