//! `cargo xtask bench`: compares restow with a bare loader and the built-in controller, and measures what users notice, in one
//! run on one real control plane.

pub(crate) mod audit;
mod built_in;
pub(crate) mod convert;
pub(crate) mod large;
mod link;
mod loader;
mod machine;
mod probe;
pub(crate) mod registration;
mod report;
mod restow;
pub(crate) mod servers;
mod widgets;

use std::{
    env, fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use restow_lab::{Assets, Cluster, ClusterSpec, Part};

use self::{
    link::{Endpoint, Protocol},
    machine::Meter,
    probe::Probe,
    report::{Contestant, Findings, Peak, Probed, Turn},
    restow::{Pace, Restow},
    widgets::Widgets,
};

/// What to measure, and on how much.
#[derive(Args)]
pub(crate) struct Bench {
    /// Custom resources of 1 KiB to rewrite in each turn.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    objects: usize,
    /// Measure only these.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "WHAT",
        default_value = "ceiling,fast,steady,built-in,probe"
    )]
    only: Vec<Subject>,
    /// How often to repeat the turns, one contestant after the other; medians count.
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: usize,
    /// Measure the ceiling over HTTP/1.1 with a connection for each request as well.
    #[arg(long)]
    http1: bool,
    /// The paces at which migrations run during the probe.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PACE",
        default_value = "steady,fast,gentle"
    )]
    paces: Vec<Pace>,
    /// Windows of the probe during a steady migration, each between two without; other paces get a quarter.
    #[arg(long, value_name = "N", default_value_t = 8)]
    windows: usize,
    /// The length of a window; it ends early with the migration.
    #[arg(long, value_name = "SECONDS", default_value_t = 45)]
    window: u64,
    /// Measure restow's memory at a larger number of objects too, which takes long to make.
    #[arg(long)]
    memory: bool,
    /// The larger number of objects.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    objects_large: usize,
    /// More arguments for restow, to try what they change, such as "--page-size 5000".
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    restow_args: String,
    /// Write the tables to this file too, such as docs/BENCHMARKS.md.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// The bare loader, which sets the ceiling.
    Ceiling,
    /// restow at its fast pace.
    Fast,
    /// restow at its steady pace.
    Steady,
    /// The controller in kube-controller-manager.
    BuiltIn,
    /// What users of the cluster notice.
    Probe,
}

/// Builds what is measured, runs it and prints the tables.
pub(crate) async fn run(bench: Bench) -> Result<()> {
    let programs = build()?;
    let assets = Assets::find()?;
    let wanted = |subject| bench.only.contains(&subject);
    let mut spec = ClusterSpec::new().durable();
    if wanted(Subject::BuiltIn) {
        spec = spec.built_in_migrator();
    }
    let machine = machine::describe(&assets).await?;
    eprintln!("{machine}");
    let cluster = Cluster::start(&assets, spec).await?;
    if wanted(Subject::BuiltIn) {
        // It runs only in its own turns, because it would slow down the others.
        cluster.kill(Part::ControllerManager)?;
    }
    let endpoint = Endpoint::of(&cluster).await?;
    eprintln!("making {} objects", bench.objects);
    let widgets = Widgets::make(Some(cluster.etcd()), &endpoint, bench.objects).await?;
    let restow = Restow::new(&programs, cluster.kubeconfig(0, "admin"), &bench.restow_args);
    let mut stage =
        Stage { cluster: &cluster, endpoint: &endpoint, widgets, restow, findings: Findings::default() };

    for round in 0..bench.rounds {
        let turns = order(&bench, round);
        for contestant in turns {
            stage.turn(contestant, round).await?;
        }
    }
    if wanted(Subject::Probe) {
        probe::prepare(&endpoint).await?;
        let window = Duration::from_secs(bench.window);
        let fewer = bench.windows.div_ceil(4);
        for pace in &bench.paces {
            let windows = if *pace == Pace::Steady { bench.windows } else { fewer };
            stage.probe(*pace, windows, window).await?;
        }
    }
    if bench.memory {
        stage.memory(bench.objects_large).await?;
    }

    let tables = stage.findings.tables();
    println!("{machine}\n{}\n\n{tables}", data(&bench));
    if let Some(path) = &bench.markdown {
        fs::write(path, markdown(&bench, &machine, &tables))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// The folder of the release build of restow, after building it.
///
/// The loader must be as well built as restow, or it would set the ceiling too low: an unoptimized bench becomes an
/// optimized one.
fn build() -> Result<PathBuf> {
    let unoptimized = cfg!(debug_assertions);
    let mut command = crate::cargo::command();
    command.args(["build", "--release", "--quiet", "--package", "restow"]);
    if unoptimized {
        command.args(["--package", "xtask"]);
    }
    eprintln!("building restow");
    ensure!(command.status().context("starting cargo")?.success(), "restow does not build");
    let this = env::current_exe()?;
    if unoptimized {
        let target = this.ancestors().nth(2).context("the target folder is not where it should be")?;
        let optimized = target.join("release").join("xtask");
        return Err(Command::new(&optimized).args(env::args_os().skip(1)).exec())
            .with_context(|| format!("starting {}", optimized.display()));
    }
    Ok(this.parent().map(Path::to_owned).unwrap_or_default())
}

/// The contestants of a round. Each round starts with another one, so that the order favours nobody. The built-in controller is
/// last, because its server-side apply changes managedFields.
fn order(bench: &Bench, round: usize) -> Vec<Contestant> {
    let mut turns = Vec::new();
    for subject in [Subject::Ceiling, Subject::Fast, Subject::Steady] {
        match subject {
            _ if !bench.only.contains(&subject) => {}
            Subject::Ceiling if bench.http1 => {
                turns.extend([Contestant::Ceiling, Contestant::CeilingHttp1]);
            }
            Subject::Ceiling => turns.push(Contestant::Ceiling),
            Subject::Fast => turns.push(Contestant::Fast),
            _ => turns.push(Contestant::Steady),
        }
    }
    let first = round % turns.len().max(1);
    turns.rotate_left(first);
    for (subject, contestant) in [
        (Subject::Fast, Contestant::FastWhole),
        (Subject::Steady, Contestant::SteadyWhole),
        (Subject::BuiltIn, Contestant::BuiltIn),
    ] {
        // The time of a whole run is in no ratio, so it is measured once.
        if bench.only.contains(&subject) && (round == 0 || subject == Subject::BuiltIn) {
            turns.push(contestant);
        }
    }
    turns
}

/// The cluster and everything that is measured on it.
struct Stage<'a> {
    cluster: &'a Cluster,
    endpoint: &'a Endpoint,
    widgets: Widgets<'a>,
    restow: Restow,
    findings: Findings,
}

impl Stage<'_> {
    /// Changes the storage version, lets one contestant rewrite everything and counts what it left.
    async fn turn(&mut self, contestant: Contestant, round: usize) -> Result<()> {
        self.widgets.flip().await?;
        let meter = Meter::start(self.cluster)?;
        let (took, peak) = match contestant {
            Contestant::Ceiling => (self.widgets.rewrite(Protocol::Http2).await?, None),
            Contestant::CeilingHttp1 => (self.widgets.rewrite(Protocol::Http1).await?, None),
            Contestant::Fast => self.pass(Pace::Fast).await?,
            Contestant::Steady => self.pass(Pace::Steady).await?,
            Contestant::FastWhole => self.whole(Pace::Fast).await?,
            Contestant::SteadyWhole => self.whole(Pace::Steady).await?,
            Contestant::BuiltIn => {
                let ran = built_in::run(self.cluster, self.endpoint, &self.widgets).await?;
                (ran.whole, Some(ran.peak))
            }
        };
        let usage = meter.read()?;
        let (objects, left) = (self.widgets.count(), self.widgets.left_behind().await?.unwrap_or(0));
        let turn = Turn { objects, took, peak, left, usage };
        eprintln!(
            "round {}: {}: {:.0}/s, {left} left behind, {:.0} % of the processors went to others",
            round + 1,
            contestant.title(),
            turn.rate(),
            100.0 * usage.others
        );
        self.findings.add(contestant, turn);
        Ok(())
    }

    async fn pass(&self, pace: Pace) -> Result<(Duration, Option<u64>)> {
        let ran = self.restow.run(pace, false).await?;
        Ok((ran.pass, Some(ran.peak)))
    }

    async fn whole(&self, pace: Pace) -> Result<(Duration, Option<u64>)> {
        let ran = self.restow.run(pace, true).await?;
        Ok((ran.whole, Some(ran.peak)))
    }

    /// Measures what users notice: without a migration, during one, without, and so on, in windows of one length.
    async fn probe(&mut self, pace: Pace, windows: usize, window: Duration) -> Result<()> {
        let mut probed = Probed { pace: pace.word(), windows, without: Vec::new(), during: Vec::new() };
        let mut length = window;
        self.widgets.flip().await?;
        for number in 0..windows {
            probed.without.extend(self.quiet_window(length).await?);
            let during = self.busy_window(pace, window).await?;
            length = during.1;
            probed.during.extend(during.0);
            self.widgets.flip().await?;
            eprintln!("probe beside {}: window {} of {windows} lasted {length:.1?}", pace.word(), number + 1);
        }
        probed.without.extend(self.quiet_window(length).await?);
        eprintln!("probe beside {}: 99th percentile {:.2} times as long", pace.word(), probed.ratio());
        self.findings.probes.push(probed);
        Ok(())
    }

    async fn quiet_window(&self, length: Duration) -> Result<Vec<Duration>> {
        let probe = Probe::start(self.endpoint);
        tokio::time::sleep(length).await;
        probe.stop().await
    }

    /// A window in which restow rewrites all the time, and how long it was.
    async fn busy_window(&self, pace: Pace, at_most: Duration) -> Result<(Vec<Duration>, Duration)> {
        let mut running = self.restow.start(pace, false)?;
        let since = running.rewriting().await?;
        let probe = Probe::start(self.endpoint);
        tokio::select! {
            ended = running.exited() => ended?,
            () = tokio::time::sleep(at_most) => {}
        }
        let length = since.elapsed();
        let latencies = probe.stop().await?;
        running.stop().await?;
        Ok((latencies, length))
    }

    /// Measures restow's memory at the number of objects there is and at a larger one.
    async fn memory(&mut self, large: usize) -> Result<()> {
        let small = self.peak().await?;
        eprintln!("making {large} objects");
        self.widgets.grow(large).await?;
        let large = self.peak().await?;
        self.findings.memory = Some((small, large));
        self.widgets.flip().await?;
        let bytes = self.restow.controller(self.cluster).await?;
        eprintln!("memory of the controller: {} KiB", bytes / 1024);
        self.findings.controller = Some(Peak { objects: self.widgets.count(), bytes });
        Ok(())
    }

    async fn peak(&mut self) -> Result<Peak> {
        self.widgets.flip().await?;
        let ran = self.restow.run(Pace::Fast, true).await?;
        let peak = Peak { objects: self.widgets.count(), bytes: ran.peak };
        eprintln!("memory at {} objects: {} KiB", peak.objects, peak.bytes / 1024);
        Ok(peak)
    }
}

fn data(bench: &Bench) -> String {
    format!(
        "{} custom resources of 1 KiB, storage version flipped before each turn, {} round{}; the controller manager \
         runs only during the turns of the built-in controller",
        bench.objects,
        bench.rounds,
        if bench.rounds == 1 { "" } else { "s, medians" }
    )
}

fn markdown(bench: &Bench, machine: &str, tables: &str) -> String {
    let args: Vec<String> = env::args().skip(1).collect();
    format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask {}`: everything in one run, side by side, on a real kube-apiserver and etcd.\n\
         The machine is a shared one of {} cores, on which the contestants, the API server and etcd all run: only ratios \
         within one run mean something.\n\n\
         {machine}. {}.\n\n{tables}",
        args.join(" "),
        std::thread::available_parallelism().map_or(0, usize::from),
        data(bench),
    )
}
