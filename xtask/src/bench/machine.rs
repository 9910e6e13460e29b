//! The machine: its hardware, the versions of the programs, and the use of its processors.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result};
use restow_lab::{Assets, Cluster};

/// How long the load is measured before the run.
const WATCH: Duration = Duration::from_secs(3);
/// Clock ticks a second in `/proc`; Linux shows them so to every program.
const TICKS: f64 = 100.0;

/// The date, the machine, its load before the run, and the versions of all programs.
pub(crate) async fn describe(assets: &Assets) -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, model)| model.trim());
    let kubernetes = word(Command::new(&assets.kube_apiserver).arg("--version"))?;
    let etcd = word(Command::new(&assets.etcd).arg("--version"))?;
    let date = jiff::Zoned::now().strftime("%Y-%m-%d");
    let (busy, all) = processors()?;
    tokio::time::sleep(WATCH).await;
    let (busy, all) = (processors()?.0 - busy, processors()?.1 - all);
    Ok(format!(
        "{date}: {cores} cores ({model}), {:.0} % busy before; restow {}, Kubernetes {kubernetes}, etcd {etcd}",
        100.0 * busy as f64 / all.max(1) as f64,
        env!("CARGO_PKG_VERSION")
    ))
}

/// The last word of the first line a program prints.
fn word(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("asking {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let word = text.lines().next().and_then(|line| line.split_whitespace().last());
    Ok(word.unwrap_or("of unknown version").to_owned())
}

/// Measures the use of the processors.
pub(crate) struct Meter<'a> {
    cluster: &'a Cluster,
    at_first: Used,
}

/// The use of the processors over some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// The processor time of the contestant, in seconds.
    pub(crate) own: f64,
    /// The share of all processors that other programs on the machine used.
    pub(crate) others: f64,
}

/// Ticks used so far.
struct Used {
    /// By this process and the children it has waited for.
    own: u64,
    /// By the control plane as it runs now.
    cluster: u64,
    busy: u64,
    all: u64,
}

impl<'a> Meter<'a> {
    /// Begins to measure.
    pub(crate) fn start(cluster: &'a Cluster) -> Result<Self> {
        Ok(Self { cluster, at_first: Used::now(cluster)? })
    }

    /// The use since it began.
    pub(crate) fn read(&self) -> Result<Usage> {
        let (now, first) = (Used::now(self.cluster)?, &self.at_first);
        let own = now.own - first.own;
        let ours = own + now.cluster.saturating_sub(first.cluster);
        let others = (now.busy - first.busy).saturating_sub(ours);
        let all = (now.all - first.all).max(1);
        Ok(Usage { own: own as f64 / TICKS, others: others as f64 / all as f64 })
    }
}

impl Used {
    fn now(cluster: &Cluster) -> Result<Self> {
        let own = ticks("self")?;
        let parts = cluster.parts().filter_map(|part| cluster.pid(part));
        let cluster = parts.filter_map(|pid| ticks(&pid.to_string()).ok()).sum();
        let (busy, all) = processors()?;
        Ok(Self { own, cluster, busy, all })
    }
}

/// The processor time that a process has used, in seconds.
pub(crate) fn seconds(pid: u32) -> Result<f64> {
    Ok(ticks(&pid.to_string())? as f64 / TICKS)
}

/// The ticks of a process and of its ended children.
fn ticks(pid: &str) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("reading the time of a process")?;
    ticks_in(&stat).context("understanding the time of a process")
}

fn ticks_in(stat: &str) -> Option<u64> {
    // The name of the program, in parentheses, may hold anything; utime, stime, cutime and cstime are fields 14 to 17.
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4);
    times.map(|field| field.parse::<u64>().ok()).sum()
}

/// The ticks the processors were busy, and all ticks.
fn processors() -> Result<(u64, u64)> {
    let stat = fs::read_to_string("/proc/stat").context("reading the processors' time")?;
    processors_in(&stat).context("understanding the processors' time")
}

fn processors_in(stat: &str) -> Option<(u64, u64)> {
    // user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted in these already.
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let all: u64 = fields.iter().sum();
    Some((all - fields.get(3)? - fields.get(4)?, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_behind_the_name_of_the_program() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1 0";
        assert_eq!(ticks_in(stat), Some(127));
        assert_eq!(ticks_in("gone"), None);
    }

    #[test]
    fn waiting_is_not_being_busy() {
        let stat = "cpu  10 1 5 100 7 1 1 2 50 0\ncpu0 1 2 3\n";
        assert_eq!(processors_in(stat), Some((20, 127)));
    }
}
