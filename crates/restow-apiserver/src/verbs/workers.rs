//! Long work without I/O, kept off the threads that serve requests.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::http::status::Failure;

/// From how many bytes on what is done to an object may take long.
pub(crate) const LARGE: usize = 64 * 1024;

/// Threads for long work: as many at once as there are processors, so that short requests get their share of them.
#[derive(Debug)]
pub(crate) struct Workers(Arc<Semaphore>);

impl Default for Workers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))))
    }
}

impl Workers {
    /// Does work on so many bytes: at once if they are few, else on a thread for long work.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        if bytes < LARGE {
            return work();
        }
        let stopped = || Failure::service_unavailable("the server has stopped");
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
    async fn only_long_work_leaves_its_thread() {
        let workers = Workers::default();
        let here = current().id();
        let thread = |bytes| workers.run::<ThreadId>(bytes, || Ok(current().id()));
        assert_eq!(thread(LARGE - 1).await.unwrap(), here);
        assert_ne!(thread(LARGE).await.unwrap(), here);
    }

    #[tokio::test]
    async fn others_are_served_meanwhile() {
        let workers = Workers::default();
        let (sender, receiver) = std::sync::mpsc::channel();
        // The work waits for something that happens on this thread.
        let work = workers.run(LARGE, move || Ok(receiver.recv().is_ok()));
        let other = async { sender.send(()).is_ok() };
        assert_eq!(tokio::join!(work, other), (Ok(true), true));
    }
}
