//! Kills, restarts, pauses and measures the parts of a cluster.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use kube::Client;
use rustix::process::Signal;

use super::Cluster;
use crate::{Flags, Memory, Part, daemon::Daemon, launch};

/// How long a part may take to become ready: several clusters may be starting on two cores.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const READY_POLL: Duration = Duration::from_millis(100);

impl Cluster {
    fn daemon(&self, part: Part) -> Result<&Daemon> {
        self.daemons().get(&part).with_context(|| format!("the cluster has no {part}"))
    }

    /// Ends a part with SIGKILL.
    pub fn kill(&self, part: Part) -> Result<()> {
        self.daemon(part)?.kill(self.reaper()).with_context(|| format!("killing {part}"))
    }

    /// Ends a part with SIGTERM, as an administrator does, and waits until it has saved everything and ended.
    pub async fn terminate(&self, part: Part) -> Result<()> {
        let daemon = self.daemon(part)?;
        daemon.signal(Signal::TERM).with_context(|| format!("stopping {part}"))?;
        let deadline = Instant::now() + READY_TIMEOUT;
        while daemon.exited().is_none() {
            if Instant::now() > deadline {
                bail!("{part} has not stopped in {READY_TIMEOUT:?}\n{}", daemon.log_tail());
            }
            tokio::time::sleep(READY_POLL).await;
        }
        self.kill(part)
    }

    /// Restarts a part on the same port with the same flags, and waits until it is ready; kills it first if it runs.
    pub async fn restart(&self, part: Part) -> Result<()> {
        self.restart_with(part, |_| ()).await
    }

    /// Restarts a part with changed flags, which it then keeps.
    pub async fn restart_with(&self, part: Part, change: impl FnOnce(&mut Flags)) -> Result<()> {
        self.kill(part)?;
        {
            let mut launch = self.daemon(part)?.launch();
            change(&mut launch.flags);
            launch::settle_emulation(&mut launch.flags);
        }
        self.spawn(part)?;
        self.wait_ready(part).await
    }

    /// Restarts a part with another program and the same flags, as an upgrade does.
    pub async fn upgrade(&self, part: Part, program: &Path) -> Result<()> {
        self.kill(part)?;
        self.daemon(part)?.launch().program = program.to_owned();
        self.spawn(part)?;
        self.wait_ready(part).await
    }

    pub(crate) fn spawn(&self, part: Part) -> Result<()> {
        self.daemon(part)?.spawn(self.reaper()).with_context(|| format!("starting {part}"))
    }

    /// Pauses a part with SIGSTOP: its connections stay open, and it does not answer. Returns when it has paused.
    pub fn pause(&self, part: Part) -> Result<()> {
        self.daemon(part)?.pause().with_context(|| format!("pausing {part}"))
    }

    /// Lets a paused part continue.
    pub fn unpause(&self, part: Part) -> Result<()> {
        self.daemon(part)?.signal(Signal::CONT).with_context(|| format!("unpausing {part}"))
    }

    /// The process id of a running part.
    pub fn pid(&self, part: Part) -> Option<u32> {
        self.daemon(part).ok()?.pid()
    }

    /// The current and the peak memory of a part.
    pub fn memory(&self, part: Part) -> Result<Memory> {
        self.daemon(part)?.memory().with_context(|| format!("measuring {part}"))
    }

    /// The flags a part was last started with.
    pub fn flags(&self, part: Part) -> Result<Flags> {
        Ok(self.daemon(part)?.launch().flags.clone())
    }

    /// The file a part logs to.
    pub fn log(&self, part: Part) -> Result<PathBuf> {
        Ok(self.daemon(part)?.launch().log.clone())
    }

    /// The last lines of a part's log, for an error message.
    pub fn log_tail(&self, part: Part) -> String {
        self.daemon(part).map(Daemon::log_tail).unwrap_or_default()
    }

    /// Waits until a part is ready; the error has the end of its log.
    ///
    /// The aggregated API server is ready when every API server forwards requests to it.
    pub async fn wait_ready(&self, part: Part) -> Result<()> {
        let daemon = self.daemon(part)?;
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let Err(cause) = self.probe(part).await else { return Ok(()) };
            if let Some(status) = daemon.exited() {
                bail!("{part} ended ({status}) before it was ready\n{}", daemon.log_tail());
            }
            if Instant::now() > deadline {
                return Err(
                    cause.context(format!("{part} is not ready in {READY_TIMEOUT:?}\n{}", daemon.log_tail()))
                );
            }
            tokio::time::sleep(READY_POLL).await;
        }
    }

    async fn probe(&self, part: Part) -> Result<()> {
        let (url, path) = match part {
            Part::Etcd => return self.etcd().health().await,
            Part::ApiServer(index) => (self.url(index), "/readyz"),
            Part::ControllerManager => {
                (self.controller_manager_url().context("no controller manager")?, "/healthz")
            }
            Part::Aggregated => return self.probe_aggregated().await,
        };
        self.ask(&url, path).await
    }

    /// Fails unless a server answers a path, with any status.
    pub(crate) async fn ask(&self, url: &str, path: &str) -> Result<()> {
        let mut config = self.access().config(url, "admin")?;
        config.read_timeout = Some(Duration::from_secs(5));
        let request = http::Request::get(path).body(Vec::new())?;
        Client::try_from(config)?.request_text(request).await?;
        Ok(())
    }
}
