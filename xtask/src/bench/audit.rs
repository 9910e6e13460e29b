//! `cargo xtask bench-audit`: how fast `restow audit` reads a large file of etcd, and in how much memory.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use restow_lab::{Assets, Cluster, ClusterSpec, Etcd, Part};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::process::Command;

use super::{
    build, machine,
    report::{cells, mib, table},
    restow::look,
};

/// What to measure, and on how much.
#[derive(Args)]
pub(crate) struct BenchAudit {
    /// Custom resources to put into etcd.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    objects: usize,
    /// The bytes of each one.
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    bytes: usize,
    /// How often each file is read.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Leave the snapshot in this file, to compare other programs.
    #[arg(long, value_name = "FILE")]
    keep: Option<std::path::PathBuf>,
}

/// Objects in one request.
const AT_ONCE: usize = 1024;

/// Builds what is measured, runs it and prints the table.
pub(crate) async fn run(bench: BenchAudit) -> Result<()> {
    let programs = build()?;
    let assets = Assets::find()?;
    let machine = machine::describe(&assets).await?;
    eprintln!("{machine}");
    let cluster = Cluster::start(&assets, ClusterSpec::new()).await?;
    plant(&cluster.etcd(), &bench).await?;
    cluster.kill(Part::ApiServer(0))?;
    cluster.terminate(Part::Etcd).await?;
    let database = cluster.dir().join("etcd/member/snap/db");
    let snapshot = bench.keep.clone().unwrap_or_else(|| cluster.dir().join("snapshot.db"));
    add_hash(&database, &snapshot)?;

    let mut rows = vec![cells(["file", "size", "objects", "time", "rate", "peak memory"])];
    for (name, file) in [("snapshot, with its hash", &snapshot), ("database of a stopped etcd", &database)] {
        for _ in 0..bench.rounds {
            rows.push(measure(name, file, &programs.join("restow"), bench.objects).await?);
            eprintln!("{}", table(&rows));
        }
    }
    println!("{machine}; objects of {} bytes, files in the page cache\n\n{}", bench.bytes, table(&rows));
    Ok(())
}

async fn plant(etcd: &Etcd, bench: &BenchAudit) -> Result<()> {
    let began = Instant::now();
    let indices: Vec<usize> = (0..bench.objects).collect();
    let padding = "x".repeat(bench.bytes.saturating_sub(150));
    for some in indices.chunks(AT_ONCE) {
        let object = |index: &usize| {
            let version = if index.is_multiple_of(10) { "v1" } else { "v2" };
            let value = format!(
                r#"{{"apiVersion":"bench.example.com/{version}","kind":"Widget","metadata":{{"name":"w-{index:07}","namespace":"default"}},"spec":{{"padding":"{padding}"}}}}"#
            );
            (format!("/registry/bench.example.com/widgets/default/w-{index:07}"), value.into_bytes())
        };
        etcd.put_all(&some.iter().map(object).collect::<Vec<_>>()).await?;
    }
    eprintln!("{} objects were put into etcd in {:.0?}", bench.objects, began.elapsed());
    Ok(())
}

/// Makes a snapshot of a database: its bytes and their hash.
fn add_hash(database: &Path, snapshot: &Path) -> Result<()> {
    let (mut from, mut to) = (File::open(database)?, File::create(snapshot)?);
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        let some = from.read(&mut buffer)?;
        if some == 0 {
            break;
        }
        hash.update(&buffer[..some]);
        to.write_all(&buffer[..some])?;
    }
    to.write_all(&hash.finalize())?;
    Ok(())
}

async fn measure(name: &str, file: &Path, restow: &Path, objects: usize) -> Result<Vec<String>> {
    warm(file)?;
    let size = fs::metadata(file)?.len();
    let began = Instant::now();
    let mut command = Command::new(restow);
    command
        .args(["audit", "--offline", "--expect", "bench.example.com/v2", "-o", "json", "--snapshot"])
        .arg(file);
    let child = command.stdout(Stdio::piped()).spawn().context("starting restow")?;
    let peak = look(child.id().context("restow ended at once")?);
    let output = child.wait_with_output().await?;
    let took = began.elapsed();
    ensure!(output.status.code() == Some(4), "restow audit ended with {}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let found = report["resources"].as_array().into_iter().flatten();
    let found: Vec<&Value> = found.filter(|one| one["resource"] == "widgets.bench.example.com").collect();
    let counts = found.first().map(|one| (one["objects"].as_u64(), one["stale"].as_u64()));
    let expected = (Some(objects as u64), Some(objects.div_ceil(10) as u64));
    ensure!(counts == Some(expected), "{counts:?} instead of {expected:?}");
    let peak = *peak.borrow();
    Ok(vec![name.to_owned(), mib(size), objects.to_string(), seconds(took), rate(size, took), mib(peak)])
}

/// Reads a file once, so that it is in the page cache.
fn warm(file: &Path) -> Result<()> {
    let mut file = File::open(file)?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

fn rate(size: u64, took: Duration) -> String {
    format!("{:.0} MB/s", size as f64 / 1e6 / took.as_secs_f64())
}
