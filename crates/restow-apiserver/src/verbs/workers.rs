//! Threads for work on large objects, apart from the threads that serve requests.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::http::status::StatusError;

/// The size in bytes from which work on an object may take long.
pub(crate) const LARGE: usize = 64 * 1024;

/// Limits concurrent work on large objects to the number of processors, so that small requests get their share.
#[derive(Debug)]
pub(crate) struct Workers(Arc<Semaphore>);

impl Default for Workers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))))
    }
}

impl Workers {
    /// Does work on so many bytes: directly if they are few, otherwise on a worker thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, StatusError> + Send + 'static,
    ) -> Result<T, StatusError> {
        if bytes < LARGE {
            return work();
        }
        let stopped = || StatusError::service_unavailable("the server has stopped");
        let place = Arc::clone(&self.0).acquire_owned().await.map_err(|_| stopped())?;
        let worked = spawn_blocking(move || {
            let worked = work();
            drop(place);
            worked
        });
        match worked.await {
            Ok(worked) => worked,
            Err(ended) if ended.is_panic() => resume_unwind(ended.into_panic()),
            Err(_) => Err(stopped()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{ThreadId, current};

    use super::*;

    #[tokio::test]
    async fn only_large_objects_are_processed_by_workers() {
        let workers = Workers::default();
        let here = current().id();
        let thread = |bytes| workers.run::<ThreadId>(bytes, || Ok(current().id()));
        assert_eq!(thread(LARGE - 1).await.unwrap(), here);
        assert_ne!(thread(LARGE).await.unwrap(), here);
    }

    #[tokio::test]
    async fn other_requests_are_served_while_workers_are_busy() {
        let workers = Workers::default();
        let (sender, receiver) = std::sync::mpsc::channel();
        // The work waits for something on this thread.
        let work = workers.run(LARGE, move || Ok(receiver.recv().is_ok()));
        let other = async { sender.send(()).is_ok() };
        assert_eq!(tokio::join!(work, other), (Ok(true), true));
    }
}
