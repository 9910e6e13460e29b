//! One child process for each cluster, which ends the processes of the cluster when this process ends, even by `kill -9`.

use std::{
    io::Write,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result};

/// Reads commands until end of file, which comes when this process ends, and then cleans up. Removal is retried because a
/// dying server may still be writing.
const SCRIPT: &str = r#"
pids=
while read -r order pid; do
  case $order in
    add) pids="$pids $pid " ;;
    del) rest=; for p in $pids; do [ "$p" = "$pid" ] || rest="$rest $p "; done; pids=$rest ;;
    dismiss) exit 0 ;;
  esac
done
for p in $pids; do kill -9 "$p" 2>/dev/null; done
[ -n "$1" ] || exit 0
for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" && exit 0; sleep 0.2; done
"#;

/// The pipe to the child.
#[derive(Debug)]
pub(crate) struct Reaper {
    child: Child,
    orders: Mutex<Option<ChildStdin>>,
}

impl Reaper {
    /// Starts the child, which removes `dir` at the end unless `RESTOW_LAB_KEEP` is set.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let keep = std::env::var_os("RESTOW_LAB_KEEP").is_some();
        // In its own session, so that a Ctrl-C at the terminal does not reach the reaper.
        let mut child = Command::new("setsid")
            .args(["sh", "-c", SCRIPT, "restow-lab-reaper"])
            .arg(if keep { Path::new("") } else { dir })
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting the reaper: `setsid` of util-linux and `sh` are needed")?;
        let orders = Mutex::new(child.stdin.take());
        Ok(Self { child, orders })
    }

    /// Registers a process.
    pub(crate) fn add(&self, pid: u32) -> Result<()> {
        self.order(&format!("add {pid}"))
    }

    /// Removes a process that has ended.
    pub(crate) fn remove(&self, pid: u32) -> Result<()> {
        self.order(&format!("del {pid}"))
    }

    /// Ends the reaper and keeps the processes and the folder.
    pub(crate) fn dismiss(&self) -> Result<()> {
        self.order("dismiss")
    }

    fn order(&self, line: &str) -> Result<()> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = orders.as_mut().context("the reaper has been sent away")?;
        writeln!(pipe, "{line}").context("talking to the reaper")
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.orders.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.child.wait().ok();
    }
}
