//! Clusters that outlive the command that starts them, and are ended by name.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::{Assets, Cluster, ClusterSpec, Part, assets};

/// The record of a detached cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Detached {
    /// The name of the cluster.
    pub name: String,
    /// The folder with its files and this record.
    pub dir: PathBuf,
    /// The address of its store.
    pub etcd: String,
    /// Its API servers.
    pub servers: Vec<DetachedServer>,
    /// The processes to end with it.
    pub processes: Vec<DetachedProcess>,
}

/// How to reach one API server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DetachedServer {
    /// Its address.
    pub url: String,
    /// The kubeconfig for `admin`.
    pub kubeconfig: PathBuf,
}

/// One process; the start time distinguishes it from a later process with the same id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DetachedProcess {
    /// The part of the cluster.
    pub part: Part,
    /// Its id.
    pub pid: u32,
    /// When it was started, in clock ticks since boot.
    pub started: u64,
}

/// Starts a cluster that outlives this process.
pub async fn up(assets: &Assets, name: &str, spec: ClusterSpec) -> Result<Detached> {
    ensure!(
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'),
        "{name:?} is no name for a cluster: letters, digits, `-` and `_` only"
    );
    let all = clusters_dir()?;
    fs::create_dir_all(&all).context("making the folder of clusters")?;
    let dir = all.join(name);
    // Creating the folder claims the name; it is removed if the start fails. The mode keeps other users from the tokens.
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("there is a cluster {name} already: end it (`lab down {name}`) or choose another name")
        }
        made => made.context("making the cluster's folder")?,
    }
    let cluster = Cluster::start_in(dir, assets, spec).await?;
    let detached = Detached::of(name, &cluster)?;
    let json = serde_json::to_vec_pretty(&detached)?;
    fs::write(state_file(&detached.dir), json).context("writing the cluster's record")?;
    cluster.detach()?;
    Ok(detached)
}

/// All detached clusters, by name.
pub fn list() -> Result<Vec<Detached>> {
    let Ok(entries) = fs::read_dir(clusters_dir()?) else { return Ok(Vec::new()) };
    let mut found: Vec<Detached> = entries
        .filter_map(|entry| fs::read(state_file(&entry.ok()?.path())).ok())
        .map(|json| serde_json::from_slice(&json).context("reading a cluster's record"))
        .collect::<Result<_>>()?;
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Ends a cluster by name: only the processes that it was started with.
pub fn down(name: &str) -> Result<()> {
    match list()?.into_iter().find(|cluster| cluster.name == name) {
        Some(cluster) => cluster.end(),
        None => bail!("there is no cluster {name}: `lab list` shows those there are"),
    }
}

impl Detached {
    fn of(name: &str, cluster: &Cluster) -> Result<Self> {
        let process = |part| {
            let pid = cluster.pid(part).with_context(|| format!("{part} is not running"))?;
            let started = start_time(pid).with_context(|| format!("{part} has just ended"))?;
            Ok(DetachedProcess { part, pid, started })
        };
        let server = |index| DetachedServer {
            url: cluster.url(index),
            kubeconfig: cluster.kubeconfig(index, "admin"),
        };
        Ok(Self {
            name: name.to_owned(),
            dir: cluster.dir().to_owned(),
            etcd: cluster.etcd().url().to_owned(),
            servers: (0..cluster.servers()).map(server).collect(),
            processes: cluster.parts().map(process).collect::<Result<_>>()?,
        })
    }

    /// The processes that still run.
    pub fn running(&self) -> impl Iterator<Item = &DetachedProcess> {
        self.processes.iter().filter(|process| process.runs())
    }

    /// Ends the processes that still run and removes the folder.
    pub fn end(&self) -> Result<()> {
        for process in self.running() {
            process.end()?;
        }
        fs::remove_dir_all(&self.dir).context("removing the cluster's folder")
    }
}

impl DetachedProcess {
    fn runs(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    fn end(&self) -> Result<()> {
        let pid = Pid::from_raw(self.pid.cast_signed()).context("the record has a process id of 0")?;
        kill_process(pid, Signal::KILL)
            .with_context(|| format!("ending {} (process {})", self.part, self.pid))?;
        for _ in 0..100 {
            if !self.runs() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("{} (process {}) does not end", self.part, self.pid)
    }
}

/// When a process that is alive was started, in ticks since boot: field 22 of its stat.
fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_start_time(stat: &str) -> Option<u64> {
    // The second field is the program's name in parentheses and may hold anything, spaces too.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if state == "Z" { None } else { fields.nth(18)?.parse().ok() }
}

fn clusters_dir() -> Result<PathBuf> {
    Ok(assets::cache_dir()?.join("clusters"))
}

fn state_file(dir: &Path) -> PathBuf {
    dir.join("state.json")
}

#[cfg(test)]
mod tests {
    use super::parse_start_time;

    #[test]
    fn a_start_time_is_read_past_a_name_with_spaces_and_not_of_a_zombie() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21";
        assert_eq!(parse_start_time(&format!("42 (a) b) S {rest}")), Some(777));
        assert_eq!(parse_start_time(&format!("42 (etcd) Z {rest}")), None);
        assert_eq!(parse_start_time("42 (etcd) S 1"), None);
    }
}
