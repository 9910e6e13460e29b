//! `cargo xtask bench-large`: one run on very many objects of a real control plane, and what it takes.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use restow_lab::{Assets, Cluster, ClusterSpec, Part, Proxy, ServerSpec};

use super::{
    build,
    link::{Call, Endpoint},
    machine,
    report::{cells, mib, table},
    restow::{Pace, Restow},
    widgets::Widgets,
};

/// What to measure, and on how much.
#[derive(Args)]
pub(crate) struct BenchLarge {
    /// Custom resources of 1 KiB to migrate, put into etcd as the API server would have stored them.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    objects: usize,
    /// The paces to migrate them at, one run each.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PACE", default_value = "fast")]
    paces: Vec<Pace>,
    /// Let kube-apiserver keep its watch cache, which holds all objects in memory, once for each served version.
    #[arg(long)]
    watch_cache: bool,
    /// More arguments for restow, to try what they change, such as "--page-size 5000".
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    restow_args: String,
}

/// What one pass took.
struct Pass {
    name: String,
    objects: usize,
    took: Duration,
    sent: u64,
    received: u64,
    allocated: f64,
}

/// What was counted up to a moment.
struct Mark {
    at: Instant,
    bytes: (u64, u64),
    allocated: f64,
}

/// The cluster and the proxy through which restow reaches it.
struct Stage<'a> {
    cluster: &'a Cluster,
    endpoint: &'a Endpoint,
    proxy: Proxy,
}

/// Builds what is measured, runs it and prints the tables.
pub(crate) async fn run(bench: BenchLarge) -> Result<()> {
    let programs = build()?;
    let assets = Assets::find()?;
    let machine = machine::describe(&assets).await?;
    eprintln!("{machine}");
    let (mut passes, mut peaks) = (Vec::new(), Vec::new());
    for &pace in &bench.paces {
        measure(&bench, &assets, &programs, pace, &mut passes, &mut peaks).await?;
    }
    println!(
        "{machine}; {} custom resources of 1 KiB, {} watch cache, no fsync\n",
        bench.objects,
        if bench.watch_cache { "with" } else { "without" },
    );
    println!("{}\n{}", costs(&passes), table(&peaks));
    Ok(())
}

/// One run on a new cluster.
async fn measure(
    bench: &BenchLarge,
    assets: &Assets,
    programs: &Path,
    pace: Pace,
    passes: &mut Vec<Pass>,
    peaks: &mut Vec<Vec<String>>,
) -> Result<()> {
    let server = ServerSpec::new().flag("watch-cache", &bench.watch_cache.to_string());
    let cluster = Cluster::start(assets, ClusterSpec::new().server(0, server)).await?;
    let endpoint = Endpoint::of(&cluster).await?;
    let mut widgets = Widgets::make(Some(cluster.etcd()), &endpoint, 1).await?;
    widgets.flip().await?;
    let began = Instant::now();
    widgets.plant(bench.objects).await?;
    eprintln!("{} objects were put into etcd in {:.0?}", bench.objects, began.elapsed());

    let proxy = Proxy::start(cluster.addr(0)).await?;
    let kubeconfig = cluster.kubeconfig_at(&proxy.url(), "admin")?;
    let stage = Stage { cluster: &cluster, endpoint: &endpoint, proxy };
    let mut running = Restow::new(programs, kubeconfig, &bench.restow_args).start(pace, true)?;
    let rewriting = running.rewriting().await?;
    let first = stage.mark().await?;
    running.verifying().await?;
    let second = stage.mark().await?;
    let name = |pass: &str| format!("--pace {}, {pass}", pace.word());
    passes.push(second.since(&first, name("rewriting"), bench.objects));
    eprintln!("{}", costs(passes));
    let ran = running.end(rewriting).await?;
    passes.push(stage.mark().await?.since(&second, name("verifying"), bench.objects));
    eprintln!("{}", costs(passes));

    let left = widgets.left_behind().await?;
    ensure!(left == Some(0), "{left:?} objects were left behind");
    if peaks.is_empty() {
        peaks.push(cells(["run", "objects", "left behind", "restow's peak", "kube-apiserver's", "etcd's"]));
    }
    let peak = |part| Ok::<_, anyhow::Error>(mib(stage.cluster.memory(part)?.peak));
    peaks.push(vec![
        format!("--pace {}, {:.0} s", pace.word(), ran.whole.as_secs_f64()),
        bench.objects.to_string(),
        "0".to_owned(),
        mib(ran.peak),
        peak(Part::ApiServer(0))?,
        peak(Part::Etcd)?,
    ]);
    Ok(())
}

impl Stage<'_> {
    async fn mark(&self) -> Result<Mark> {
        let call = Call::get("/metrics".to_owned(), "text/plain");
        let metrics = self.endpoint.link().await?.expect(call).await?;
        let allocated = allocated(&String::from_utf8_lossy(&metrics))
            .context("the API server's metrics do not say what it allocated")?;
        Ok(Mark { at: Instant::now(), bytes: self.proxy.bytes(), allocated })
    }
}

/// The bytes a Go program has allocated since its start, freed ones included.
fn allocated(metrics: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix("go_memstats_alloc_bytes_total "))?.parse().ok()
}

impl Mark {
    fn since(&self, first: &Self, name: String, objects: usize) -> Pass {
        Pass {
            name,
            objects,
            took: self.at - first.at,
            sent: self.bytes.0 - first.bytes.0,
            received: self.bytes.1 - first.bytes.1,
            allocated: self.allocated - first.allocated,
        }
    }
}

/// What each pass took for one object; bytes are those on the wire, TLS included and TCP not.
fn costs(passes: &[Pass]) -> String {
    let mut rows = vec![cells([
        "pass",
        "objects/s",
        "bytes sent for each",
        "received",
        "both, Mbit/s",
        "kube-apiserver allocates for each",
    ])];
    for pass in passes {
        let (objects, seconds) = (pass.objects as f64, pass.took.as_secs_f64());
        rows.push(vec![
            pass.name.clone(),
            format!("{:.0}", objects / seconds),
            format!("{:.0}", pass.sent as f64 / objects),
            format!("{:.0}", pass.received as f64 / objects),
            format!("{:.2}", (pass.sent + pass.received) as f64 * 8.0 / 1e6 / seconds),
            format!("{:.0} KiB", pass.allocated / objects / 1024.0),
        ]);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_allocated_is_read_from_the_metrics() {
        let metrics = "# TYPE go_memstats_alloc_bytes_total counter\ngo_memstats_alloc_bytes_total 1.5e+09\n";
        assert_eq!(allocated(metrics), Some(1.5e9));
        assert_eq!(allocated("go_memstats_alloc_bytes 3\n"), None);
    }
}
