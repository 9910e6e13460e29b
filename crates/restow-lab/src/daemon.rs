//! One process of the cluster.

use std::{
    fs::{self, File},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::{launch::Launch, reaper::Reaper};

/// How many lines of a log are in an error.
const TAIL: usize = 30;

/// How long a process may take to pause: a thread that waits for the disk pauses after that.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE_POLL: Duration = Duration::from_millis(1);

/// Sets the host name and executes the program, so that the process keeps its id.
const UNDER_HOST: &str =
    r#"{ hostname "$1" || echo "$1" >/proc/sys/kernel/hostname; } && shift && exec "$@""#;

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The resident memory.
    pub current: u64,
    /// The peak of the resident memory since the process started.
    pub peak: u64,
}

/// A process and the command to start it again.
#[derive(Debug)]
pub(crate) struct Daemon {
    launch: Mutex<Launch>,
    child: Mutex<Option<Child>>,
}

impl Daemon {
    pub(crate) fn new(launch: Launch) -> Self {
        Self { launch: Mutex::new(launch), child: Mutex::new(None) }
    }

    pub(crate) fn launch(&self) -> MutexGuard<'_, Launch> {
        self.launch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the process and registers it with the reaper; its log is appended to.
    pub(crate) fn spawn(&self, reaper: &Reaper) -> Result<()> {
        let launch = self.launch().clone();
        let log = File::options().create(true).append(true).open(&launch.log).context("opening a log")?;
        // In its own session, so that a detached cluster outlives its terminal.
        let mut command = Command::new("setsid");
        if let Some(host) = &launch.host {
            command.args(["unshare", "--uts"]);
            if !geteuid().is_root() {
                command.args(["--user", "--map-root-user"]);
            }
            command.args(["sh", "-c", UNDER_HOST, "sh", host]);
        }
        let child = command
            .arg(&launch.program)
            .args(launch.subcommand)
            .args(launch.flags.to_args())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", launch.program.display()))?;
        reaper.add(child.id())?;
        *self.child() = Some(child);
        Ok(())
    }

    /// Ends the process with SIGKILL and waits for it; it is not an error if it has ended already.
    pub(crate) fn kill(&self, reaper: &Reaper) -> Result<()> {
        let Some(mut child) = self.child().take() else { return Ok(()) };
        child.kill().and_then(|()| child.wait()).context("ending a process")?;
        reaper.remove(child.id())
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid.cast_signed())).context("it is not running")?;
        kill_process(pid, signal).context("signalling a process")
    }

    /// Stops the process and waits until every thread has stopped: after the signal, running threads continue for a moment.
    pub(crate) fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        let pid = self.pid().context("it is not running")?;
        let deadline = Instant::now() + PAUSE_TIMEOUT;
        while !is_stopped(pid)? {
            ensure!(Instant::now() < deadline, "it still runs {PAUSE_TIMEOUT:?} after it was told to pause");
            thread::sleep(PAUSE_POLL);
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// How the process ended, if it did so by itself.
    pub(crate) fn exited(&self) -> Option<String> {
        let status = self.child().as_mut()?.try_wait().ok()??;
        Some(status.to_string())
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let pid = self.pid().context("it is not running")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).context("reading its status")?;
        memory(&status).context("its status has no memory in it")
    }

    /// The end of the log.
    pub(crate) fn log_tail(&self) -> String {
        let path = self.launch().log.clone();
        let log = fs::read(&path).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        // A server logs a hundred of these at each start.
        let lines: Vec<&str> =
            log.lines().filter(|line| !line.contains("addrConn.createTransport")).collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        format!("--- the end of {} ---\n{tail}", path.display())
    }
}

/// Whether all threads of a process are stopped.
fn is_stopped(pid: u32) -> Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task")).context("reading its threads")? {
        // A thread that has just ended has no status.
        let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else { continue };
        if thread_state(&stat) != Some('T') {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The state, which follows the name; the name may contain anything.
fn thread_state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

fn memory(status: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory { current: field("VmRSS")?, peak: field("VmHWM")? })
}

#[cfg(test)]
mod tests {
    use super::{Memory, memory, thread_state};

    #[test]
    fn memory_is_read_from_the_status_of_a_process() {
        let status = "Name:\tetcd\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(memory(status), Some(Memory { current: 1 << 20, peak: 2 << 20 }));
        assert_eq!(memory("Name:\tzombie\n"), None);
    }

    #[test]
    fn the_state_of_a_thread_is_read_behind_its_name() {
        assert_eq!(thread_state("7 (a) R (b) T 1 7"), Some('T'));
        assert_eq!(thread_state("7 (etcd) S 1 7"), Some('S'));
        assert_eq!(thread_state(""), None);
    }
}
