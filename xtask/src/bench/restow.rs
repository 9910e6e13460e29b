//! restow itself: its release binary as a child process, timed and measured from outside.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use restow_lab::Cluster;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, ChildStdout, Command},
    sync::{oneshot, watch},
    task::JoinHandle,
};

use super::widgets::Widgets;

/// How often the memory of a run is read; the kernel keeps the peak, so only the last reading counts.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A pace of restow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pace {
    Gentle,
    Steady,
    Fast,
}

impl Pace {
    /// The value of `--pace`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Gentle => "gentle",
            Self::Steady => "steady",
            Self::Fast => "fast",
        }
    }
}

/// How to start restow.
pub(crate) struct Restow {
    program: PathBuf,
    kubeconfig: PathBuf,
    more: Vec<String>,
}

/// A running migration.
pub(crate) struct Running {
    child: Child,
    stdout: ChildStdout,
    began: Instant,
    rewriting: oneshot::Receiver<Instant>,
    verifying: oneshot::Receiver<Instant>,
    said: JoinHandle<String>,
    peak: watch::Receiver<u64>,
    _state: TempDir,
}

/// What a run took.
pub(crate) struct Ran {
    /// From the message that it rewrites to its end.
    pub(crate) pass: Duration,
    /// From its start to its end.
    pub(crate) whole: Duration,
    /// The peak memory, in bytes.
    pub(crate) peak: u64,
}

impl Restow {
    /// The binary in this folder, on the cluster of this kubeconfig, with additional arguments.
    pub(crate) fn new(dir: &Path, kubeconfig: PathBuf, more: &str) -> Self {
        let more = more.split_whitespace().map(str::to_owned).collect();
        Self { program: dir.join("restow"), kubeconfig, more }
    }

    /// Starts the migration of the widgets.
    pub(crate) fn start(&self, pace: Pace, verify: bool) -> Result<Running> {
        let state = tempfile::tempdir()?;
        let mut command = Command::new(&self.program);
        command
            .args(["migrate", &Widgets::name(), "-o", "json", "--pace", pace.word()])
            .args(["--verify", if verify { "full" } else { "none" }, "--state-dir"])
            .arg(state.path())
            .args(&self.more)
            .env("KUBECONFIG", &self.kubeconfig)
            .env_remove("RESTOW_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let began = Instant::now();
        let mut child = command.spawn().with_context(|| format!("starting {}", self.program.display()))?;
        let stdout = child.stdout.take().context("restow has no output")?;
        let mut lines = BufReader::new(child.stderr.take().context("restow has no errors")?).lines();
        let ((rewrites, rewriting), (verifies, verifying)) = (oneshot::channel(), oneshot::channel());
        let said = tokio::spawn(async move {
            let mut said = String::new();
            let mut signs = [(": rewriting ", Some(rewrites)), (": verifying ", Some(verifies))];
            while let Ok(Some(line)) = lines.next_line().await {
                for (sign, tell) in &mut signs {
                    if line.contains(*sign)
                        && let Some(tell) = tell.take()
                    {
                        tell.send(Instant::now()).ok();
                    }
                }
                said.push_str(&line);
                said.push('\n');
            }
            said
        });
        let peak = look(child.id().context("restow ended at once")?);
        Ok(Running { child, stdout, began, rewriting, verifying, said, peak, _state: state })
    }

    /// A whole migration.
    pub(crate) async fn run(&self, pace: Pace, verify: bool) -> Result<Ran> {
        let mut running = self.start(pace, verify)?;
        let rewriting = running.rewriting().await?;
        running.end(rewriting).await
    }
}

impl Restow {
    /// The peak memory of the controller while it migrates every resource of the cluster once.
    pub(crate) async fn controller(&self, cluster: &Cluster) -> Result<u64> {
        let command = |args: &[&str]| {
            let mut command = Command::new(&self.program);
            command.args(args).env("KUBECONFIG", &self.kubeconfig).env_remove("RESTOW_LOG");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
            command
        };
        let installed = command(&["install", "--crds", "--apply", "--wait"]).status().await?;
        if !installed.success() {
            bail!("the definitions could not be installed: {installed}");
        }
        let args = ["controller", "--leader-elect=false", "--listen", "127.0.0.1:0", "--pace", "fast"];
        let mut child = command(&args).spawn().context("starting the controller")?;
        let peak = look(child.id().context("the controller ended at once")?);
        let client = cluster.client(0)?;
        while !all_succeeded(&client).await? {
            if let Some(status) = child.try_wait()? {
                bail!("the controller ended: {status}");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        child.kill().await?;
        Ok(*peak.borrow())
    }
}

/// Whether there are migrations, of the widgets too, and all have succeeded.
async fn all_succeeded(client: &kube::Client) -> Result<bool> {
    let path = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";
    let all: Value = client.request(http::Request::get(path).body(Vec::new())?).await?;
    let all = all["items"].as_array().cloned().unwrap_or_default();
    let of = |one: &Value| {
        let of = &one["spec"]["resource"];
        format!(
            "{}.{}",
            of["resource"].as_str().unwrap_or_default(),
            of["group"].as_str().unwrap_or_default()
        )
    };
    let widgets = all.iter().any(|one| of(one) == Widgets::name());
    Ok(widgets && all.iter().all(|one| one["status"]["phase"] == "Succeeded"))
}

impl Running {
    /// When the first write was about to be sent.
    pub(crate) async fn rewriting(&mut self) -> Result<Instant> {
        if let Ok(since) = (&mut self.rewriting).await {
            return Ok(since);
        }
        bail!("restow rewrote nothing: {}", (&mut self.said).await?)
    }

    /// When the pass that verifies was about to begin.
    pub(crate) async fn verifying(&mut self) -> Result<Instant> {
        if let Ok(since) = (&mut self.verifying).await {
            return Ok(since);
        }
        bail!("restow verified nothing: {}", (&mut self.said).await?)
    }

    /// Waits for the process to end, by itself or by [`stop`](Self::stop).
    pub(crate) async fn exited(&mut self) -> Result<()> {
        self.child.wait().await?;
        Ok(())
    }

    /// Ends the run where it is.
    pub(crate) async fn stop(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Waits for its end, which must be a success.
    pub(crate) async fn end(mut self, rewriting: Instant) -> Result<Ran> {
        let mut report = String::new();
        self.stdout.read_to_string(&mut report).await?;
        let status = self.child.wait().await?;
        let ended = Instant::now();
        let said = self.said.await?;
        let succeeded =
            serde_json::from_str::<Value>(&report).is_ok_and(|report| report["succeeded"] == true);
        if !status.success() || !succeeded {
            bail!("restow ended with {status}\n{said}{report}");
        }
        let peak = *self.peak.borrow();
        Ok(Ran { pass: ended - rewriting, whole: ended - self.began, peak })
    }
}

/// Follows the peak memory of a process until it has ended.
pub(super) fn look(pid: u32) -> watch::Receiver<u64> {
    let (tell, peak) = watch::channel(0);
    tokio::spawn(async move {
        while let Some(bytes) = peak_memory(pid) {
            tell.send(bytes).ok();
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    peak
}

pub(crate) fn peak_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
