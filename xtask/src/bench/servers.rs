//! `cargo xtask bench-servers`: compares the embedded API server with a real kube-apiserver and etcd, in one run.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use restow_apiserver::{Server, ServerSettings};
use restow_lab::{Assets, Cluster, ClusterSpec};
use restow_store::file::{self, FileStore};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{
    build,
    link::{Endpoint, Protocol},
    machine,
    report::{cells, median, mib, table},
    restow::{Pace, Restow, peak_memory},
    widgets::Widgets,
};

/// How often a start is repeated.
const STARTS: usize = 11;
/// How long a server may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// What to measure, and on how much.
#[derive(Args)]
pub(crate) struct BenchServers {
    /// Custom resources of 1 KiB to create and to rewrite.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    objects: usize,
    /// How often to rewrite all of them; medians count.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Also migrate this many objects on the embedded server, such as 1000000.
    #[arg(long, value_name = "N")]
    large: Option<usize>,
}

/// What one server did.
struct Done {
    server: &'static str,
    created: f64,
    rewritten: f64,
    peak: u64,
}

/// `restow apiserver`, as a process.
struct Embedded {
    child: Child,
    kubeconfig: PathBuf,
    _dir: TempDir,
}

/// Builds what is measured, runs it and prints the tables.
pub(crate) async fn run(bench: BenchServers) -> Result<()> {
    let programs = build()?;
    let assets = Assets::find()?;
    let machine = machine::describe(&assets).await?;
    eprintln!("{machine}");
    let start = start_in_process().await?;
    eprintln!("ready in-process after {start:.1?}");

    let cluster = Cluster::start(&assets, ClusterSpec::new().durable()).await?;
    let endpoint = Endpoint::of(&cluster).await?;
    let widgets = Widgets::define(Some(cluster.etcd()), &endpoint).await?;
    let pids: Vec<u32> = cluster.parts().filter_map(|part| cluster.pid(part)).collect();
    let real = measure("kube-apiserver with etcd", widgets, &pids, &bench).await?;
    drop(cluster);

    let embedded = Embedded::start(&programs).await?;
    let endpoint = Endpoint::read(&embedded.kubeconfig).await?;
    let widgets = Widgets::define(None, &endpoint).await?;
    let ours = measure("restow apiserver", widgets, &[embedded.pid()?], &bench).await?;
    drop(embedded);

    println!("{machine}\n{} custom resources of 1 KiB, 32 requests in flight\n", bench.objects);
    println!("{}", comparison(&[&real, &ours]));
    println!("{}", claims(&real, &ours, start));
    if let Some(large) = bench.large {
        println!("{}", migrate_many(&programs, large).await?);
    }
    Ok(())
}

/// The median of some starts in this process, on a new file each.
async fn start_in_process() -> Result<Duration> {
    let mut took = Vec::new();
    for _ in 0..STARTS {
        let dir = tempfile::tempdir()?;
        let began = Instant::now();
        let store = FileStore::open(dir.path(), file::FileSettings::default())?;
        let server = Server::start(ServerSettings::new(Arc::new(store))).await?;
        took.push(began.elapsed().as_secs_f64());
        server.stop().await;
    }
    Ok(Duration::from_secs_f64(median(took.into_iter())))
}

/// Creates the objects, and rewrites them after each of several flips of their storage version.
async fn measure(
    server: &'static str,
    mut widgets: Widgets<'_>,
    pids: &[u32],
    bench: &BenchServers,
) -> Result<Done> {
    let rate = |took: Duration| bench.objects as f64 / took.as_secs_f64();
    let created = rate(widgets.grow(bench.objects).await?);
    let mut rewritten = Vec::new();
    for _ in 0..bench.rounds {
        widgets.flip().await?;
        rewritten.push(rate(widgets.rewrite(Protocol::Http2).await?));
    }
    let peak = pids.iter().filter_map(|&pid| peak_memory(pid)).sum();
    let rewritten = median(rewritten.into_iter());
    eprintln!("{server}: {created:.0} creates/s, {rewritten:.0} rewrites/s, {}", mib(peak));
    Ok(Done { server, created, rewritten, peak })
}

fn comparison(servers: &[&Done]) -> String {
    let mut rows = vec![cells(["server", "creates/s", "no-op rewrites/s", "peak memory"])];
    for done in servers {
        let rate = |rate: f64| format!("{rate:.0}");
        rows.push(vec![done.server.to_owned(), rate(done.created), rate(done.rewritten), mib(done.peak)]);
    }
    table(&rows)
}

fn claims(real: &Done, ours: &Done, start: Duration) -> String {
    let times = |ours: f64, real: f64| format!("{:.1}", ours / real);
    let share = ours.peak as f64 / real.peak.max(1) as f64;
    table(&[
        cells(["claim", "wanted", "measured"]),
        vec!["creates, embedded / real".to_owned(), "≥ 8".to_owned(), times(ours.created, real.created)],
        vec![
            "no-op rewrites, embedded / real".to_owned(),
            "≥ 8".to_owned(),
            times(ours.rewritten, real.rewritten),
        ],
        vec!["peak memory, embedded / real".to_owned(), "≤ 0.25".to_owned(), format!("{share:.2}")],
        vec!["started and ready in-process".to_owned(), "≤ 100 ms".to_owned(), format!("{start:.1?}")],
    ])
}

/// A migration of very many objects on the embedded server.
async fn migrate_many(programs: &Path, objects: usize) -> Result<String> {
    let embedded = Embedded::start(programs).await?;
    let endpoint = Endpoint::read(&embedded.kubeconfig).await?;
    let mut widgets = Widgets::define(None, &endpoint).await?;
    eprintln!("making {objects} objects");
    let made = widgets.grow(objects).await?;
    widgets.flip().await?;
    let ran = Restow::new(programs, embedded.kubeconfig.clone(), "").run(Pace::Fast, true).await?;
    let peak = peak_memory(embedded.pid()?).unwrap_or_default();
    let rate = |took: Duration| format!("{:.0}/s", objects as f64 / took.as_secs_f64());
    Ok(table(&[
        cells(["objects", "made", "rewritten and verified", "whole run", "server's peak memory", "restow's"]),
        vec![
            objects.to_string(),
            rate(made),
            rate(ran.pass),
            format!("{:.0} s", ran.whole.as_secs_f64()),
            mib(peak),
            mib(ran.peak),
        ],
    ]))
}

impl Embedded {
    /// Starts it in a new folder, and waits until it is ready.
    async fn start(programs: &Path) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let kubeconfig = dir.path().join("kubeconfig");
        let mut command = Command::new(programs.join("restow"));
        command.args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path().join("data"));
        command.arg("--write-kubeconfig").arg(&kubeconfig).env_remove("RESTOW_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().context("starting restow apiserver")?;
        let deadline = Instant::now() + READY_TIMEOUT;
        while !kubeconfig.exists() {
            if let Some(status) = child.try_wait()? {
                bail!("restow apiserver ended: {status}");
            }
            if Instant::now() > deadline {
                bail!("restow apiserver is not ready after {READY_TIMEOUT:?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Endpoint::read(&kubeconfig)
            .await?
            .link()
            .await?
            .wait("/api/v1", |found| found["resources"].is_array())
            .await?;
        Ok(Self { child, kubeconfig, _dir: dir })
    }

    fn pid(&self) -> Result<u32> {
        self.child.id().context("restow apiserver has ended")
    }
}
